package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A sandbox is what the containers of a pod share: a network namespace with one address, and its files for names.
type sandbox struct {
	id, address, folder string
	config              *cri.PodSandboxConfig
	created             int64
	ready               bool
}

func now() int64 { return time.Now().UnixNano() }

func ip(arguments ...string) error {
	said, err := exec.Command("ip", arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(string(said)))
	}
	return nil
}

// connect makes the pod's network namespace: one end of a veth pair in it, the other on the node's bridge. The pod knows no neighbour but
// the gateway, so that whatever it sends goes through the node, where kube-proxy and NetworkPolicies see it.
func (n *node) connect(s *sandbox) error {
	outside := "v" + s.id
	steps := [][]string{
		{"netns", "add", s.id},
		{"link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", s.id},
		{"link", "set", outside, "master", n.bridge, "up"},
		{"-n", s.id, "link", "set", "lo", "up"},
		{"-n", s.id, "address", "add", s.address + "/32", "dev", "eth0"},
		{"-n", s.id, "link", "set", "eth0", "up"},
		{"-n", s.id, "route", "add", n.gateway, "dev", "eth0"},
		{"-n", s.id, "route", "add", "default", "via", n.gateway},
	}
	for _, step := range steps {
		if err := ip(step...); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) RunPodSandbox(_ context.Context, request *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	n.lock.Lock()
	n.next++
	number := n.next
	n.lock.Unlock()
	if number > podsMax {
		return nil, status.Errorf(codes.ResourceExhausted, "this node has given out its %d addresses", podsMax)
	}
	s := &sandbox{
		id:      fmt.Sprintf("n%dp%d", n.number, number),
		address: fmt.Sprintf("10.244.%d.%d", n.number, number+1),
		config:  request.Config,
		created: now(),
		ready:   true,
	}
	s.folder = filepath.Join(n.root, s.id)
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return nil, err
	}
	dns, lines := request.Config.DnsConfig, ""
	for _, server := range dns.GetServers() {
		lines += "nameserver " + server + "\n"
	}
	lines += "search " + strings.Join(dns.GetSearches(), " ") + "\noptions " + strings.Join(dns.GetOptions(), " ") + "\n"
	if err := os.WriteFile(filepath.Join(s.folder, "resolv.conf"), []byte(lines), 0o644); err != nil {
		return nil, err
	}
	if err := n.connect(s); err != nil {
		return nil, err
	}
	if folder := request.Config.LogDirectory; folder != "" {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	n.lock.Lock()
	n.sandboxes[s.id] = s
	n.lock.Unlock()
	return &cri.RunPodSandboxResponse{PodSandboxId: s.id}, nil
}

func (n *node) StopPodSandbox(_ context.Context, request *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	n.lock.Lock()
	s := n.sandboxes[request.PodSandboxId]
	var running []*container
	for _, c := range n.containers {
		if s != nil && c.sandbox == s {
			running = append(running, c)
		}
	}
	stopped := s == nil || !s.ready
	if s != nil {
		s.ready = false
	}
	n.lock.Unlock()
	for _, c := range running {
		c.stop(0)
	}
	if !stopped {
		return &cri.StopPodSandboxResponse{}, ip("netns", "delete", s.id)
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (n *node) RemovePodSandbox(ctx context.Context, request *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	if _, err := n.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: request.PodSandboxId}); err != nil {
		return nil, err
	}
	n.lock.Lock()
	defer n.lock.Unlock()
	if s := n.sandboxes[request.PodSandboxId]; s != nil {
		delete(n.sandboxes, s.id)
		for id, c := range n.containers {
			if c.sandbox == s {
				delete(n.containers, id)
			}
		}
		_ = os.RemoveAll(s.folder)
	}
	return &cri.RemovePodSandboxResponse{}, nil
}

func (s *sandbox) state() cri.PodSandboxState {
	if s.ready {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

func (n *node) PodSandboxStatus(_ context.Context, request *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	n.lock.Lock()
	defer n.lock.Unlock()
	s := n.sandboxes[request.PodSandboxId]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %q", request.PodSandboxId)
	}
	return &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{
		Id:          s.id,
		Metadata:    s.config.Metadata,
		State:       s.state(),
		CreatedAt:   s.created,
		Network:     &cri.PodSandboxNetworkStatus{Ip: s.address},
		Linux:       &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: s.config.Linux.GetSecurityContext().GetNamespaceOptions()}},
		Labels:      s.config.Labels,
		Annotations: s.config.Annotations,
	}}, nil
}

func (n *node) ListPodSandbox(_ context.Context, request *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	n.lock.Lock()
	defer n.lock.Unlock()
	answer, filter := &cri.ListPodSandboxResponse{}, request.Filter
	for _, s := range n.sandboxes {
		if filter != nil && (filter.Id != "" && filter.Id != s.id ||
			filter.State != nil && filter.State.State != s.state() || !has(s.config.Labels, filter.LabelSelector)) {
			continue
		}
		answer.Items = append(answer.Items, &cri.PodSandbox{
			Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created,
			Labels: s.config.Labels, Annotations: s.config.Annotations,
		})
	}
	sort.Slice(answer.Items, func(a, b int) bool { return answer.Items[a].CreatedAt > answer.Items[b].CreatedAt })
	return answer, nil
}

func has(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if labels[key] != value {
			return false
		}
	}
	return true
}
