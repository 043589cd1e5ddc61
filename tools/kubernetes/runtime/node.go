package main

import (
	"context"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Addresses of a node's pods, which are not given out again.
const podsMax = 250

type nodeConfig struct {
	socket, root, images, bridge, gateway string
	number                                int
}

// A node answers the kubelet. Its state is in memory: when it ends, so do its containers, as when a machine fails.
type node struct {
	cri.UnimplementedRuntimeServiceServer
	nodeConfig
	images *images
	// Where the kubelet gets a port forwarded.
	streams *streams

	lock        sync.Mutex
	next, next2 int
	sandboxes   map[string]*sandbox
	containers  map[string]*container
}

func serveNode(config nodeConfig) error {
	if err := os.MkdirAll(config.root, 0o755); err != nil {
		return err
	}
	n := &node{
		nodeConfig: config,
		images:     &images{path: config.images, root: config.root, pulled: map[string]bool{}},
		sandboxes:  map[string]*sandbox{},
		containers: map[string]*container{},
	}
	var err error
	if n.streams, err = serveStreams(n); err != nil {
		return err
	}
	_ = os.Remove(config.socket)
	listener, err := net.Listen("unix", config.socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, n)
	cri.RegisterImageServiceServer(server, n.images)
	return server.Serve(listener)
}

func (n *node) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "trawl-test", RuntimeVersion: "0.1.0", RuntimeApiVersion: "v1"}, nil
}

func (n *node) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	conditions := []*cri.RuntimeCondition{{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Status: true}}
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: conditions}}, nil
}

func (n *node) UpdateRuntimeConfig(context.Context, *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

func (n *node) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_CGROUPFS}}, nil
}

func (n *node) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	return &cri.ListPodSandboxStatsResponse{}, nil
}

func (n *node) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	return &cri.ListContainerStatsResponse{}, nil
}
