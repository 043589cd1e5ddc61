package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// How long changes of services are collected.
const settle = 20 * time.Millisecond

// How long a connection to an endpoint may take until another endpoint is tried.
const dialTimeout = 2 * time.Second

type servicesConfig struct {
	kubeconfig, dns, domain string
}

// A directory is what the API server says of services: what their ports lead to, and what their names mean.
type directory struct {
	ports map[string]*port
	names map[string][]net.IP
}

// A port of a ClusterIP: connections are taken here and carried to one of the ready endpoints in turn.
type port struct {
	listener  net.Listener
	endpoints atomic.Pointer[[]string]
	next      atomic.Uint64
}

type services struct {
	servicesConfig
	lock    sync.RWMutex
	current directory
}

// serveServices carries TCP to ClusterIPs and answers names, for the pods of all nodes. The addresses of services are this machine's own
// (a local route). Unlike kube-proxy it hides the address of the client.
func serveServices(config servicesConfig) error {
	rest, err := clientcmd.BuildConfigFromFlags("", config.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	s := &services{servicesConfig: config, current: directory{ports: map[string]*port{}, names: map[string][]net.IP{}}}
	if err := s.serveNames(); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	known, slices := factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()
	changed := make(chan struct{}, 1)
	touch := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { touch() }, UpdateFunc: func(any, any) { touch() }, DeleteFunc: func(any) { touch() },
	}
	_, _ = known.Informer().AddEventHandler(handler)
	_, _ = slices.Informer().AddEventHandler(handler)
	ctx := context.Background()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	touch()
	for range changed {
		time.Sleep(settle)
		all, _ := known.Lister().List(labels.Everything())
		ends, _ := slices.Lister().List(labels.Everything())
		s.apply(all, ends)
	}
	return nil
}

func (s *services) apply(all []*core.Service, ends []*discovery.EndpointSlice) {
	wanted, names := map[string][]string{}, map[string][]net.IP{}
	for _, service := range all {
		name := fmt.Sprintf("%s.%s.svc.%s.", service.Name, service.Namespace, s.domain)
		headless := service.Spec.ClusterIP == core.ClusterIPNone
		if !headless && service.Spec.ClusterIP != "" {
			names[name] = []net.IP{net.ParseIP(service.Spec.ClusterIP)}
		}
		for _, slice := range ends {
			if slice.Namespace != service.Namespace || slice.Labels[discovery.LabelServiceName] != service.Name {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
					continue
				}
				for _, address := range endpoint.Addresses {
					if headless {
						names[name] = append(names[name], net.ParseIP(address))
					}
					if endpoint.Hostname != nil {
						names[*endpoint.Hostname+"."+name] = []net.IP{net.ParseIP(address)}
					}
					if headless || service.Spec.ClusterIP == "" {
						continue
					}
					for _, of := range service.Spec.Ports {
						for _, end := range slice.Ports {
							if end.Name == nil || end.Port == nil || *end.Name != of.Name {
								continue
							}
							at := net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(of.Port)))
							wanted[at] = append(wanted[at], net.JoinHostPort(address, strconv.Itoa(int(*end.Port))))
						}
					}
				}
			}
		}
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.current.names = names
	for at, held := range s.current.ports {
		if len(wanted[at]) == 0 {
			// Without ready endpoints connections are refused; those that were made go on.
			_ = held.listener.Close()
			delete(s.current.ports, at)
		}
	}
	for at, endpoints := range wanted {
		held := s.current.ports[at]
		if held == nil {
			listener, err := net.Listen("tcp", at)
			if err != nil {
				log.Printf("service at %s: %v", at, err)
				continue
			}
			held = &port{listener: listener}
			s.current.ports[at] = held
			go held.accept()
		}
		held.endpoints.Store(&endpoints)
	}
}

func (p *port) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.carry(client)
	}
}

func (p *port) carry(client net.Conn) {
	endpoints := *p.endpoints.Load()
	for range endpoints {
		end := endpoints[p.next.Add(1)%uint64(len(endpoints))]
		server, err := net.DialTimeout("tcp", end, dialTimeout)
		if err == nil {
			join(client, server)
			return
		}
	}
	_ = client.Close()
}
