// cert-manager's controllers that issuers of the kinds CA and SelfSigned and their certificates need, and its webhook, as released, in one
// executable for tools/kubernetes_walk: cert-manager's own programs are modules that are not published. No ACME. This module is named
// below cert-manager's because Go gives the webhook's constructor to no other.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	webhookconfig "github.com/cert-manager/cert-manager/internal/apis/config/webhook"
	"github.com/cert-manager/cert-manager/internal/webhook"
	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
)

const (
	// Of each controller.
	workers = 2
	// cert-manager's own defaults.
	backoffMin = time.Hour
	backoffMax = 32 * time.Hour
	// Where the webhook is, and the Secret that it makes, which holds the authority of its certificate.
	namespace     = "cert-manager"
	webhookName   = "cert-manager-webhook"
	webhookSecret = "cert-manager-webhook-ca"
	leafDuration  = 7 * 24 * time.Hour
)

// serveWebhook answers the API server's questions about cert-manager's objects until the context ends.
func serveWebhook(ctx context.Context, kubeconfig string, port int) error {
	config := webhookconfig.WebhookConfiguration{SecurePort: int32(port), KubeConfig: kubeconfig, MetricsListenAddress: "0"}
	dynamic := &config.TLSConfig.Dynamic
	dynamic.SecretNamespace, dynamic.SecretName, dynamic.LeafDuration = namespace, webhookSecret, leafDuration
	dynamic.DNSNames = []string{webhookName + "." + namespace + ".svc"}
	server, err := webhook.NewCertManagerWebhookServer(logf.Log, config)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

func main() {
	// A set of its own: libraries declare options of the same name in the common one.
	flags := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "file with which it is a user of the API server")
	webhookPort := flags.Int("webhook-port", 0, "port of the webhook")
	_ = flags.Parse(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         *kubeconfig,
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: namespace},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: backoffMin,
			CertificateRequestMaximumBackoffDuration: backoffMax,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	shared, err := factory.Build()
	if err != nil {
		log.Fatal(err)
	}
	for name, construct := range controller.Known() {
		made, err := construct(factory)
		if err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		go func() {
			if err := made.Run(workers, ctx); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
		}()
	}
	go func() { log.Fatalf("webhook: %v", serveWebhook(ctx, *kubeconfig, *webhookPort)) }()
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	<-ctx.Done()
}
