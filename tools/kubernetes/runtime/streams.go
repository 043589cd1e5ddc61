package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// Streams of `kubectl port-forward`, to the pod's address. There are none for exec and attach: images have no shell.
type streams struct {
	streaming.Server
	node *node
}

var errNoExec = errors.New("this runtime carries no exec and no attach")

func serveStreams(n *node) (*streams, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	s := &streams{node: n}
	if s.Server, err = streaming.NewServer(config, s); err != nil {
		return nil, err
	}
	go func() { _ = http.Serve(listener, s.Server) }()
	return s, nil
}

func (n *node) PortForward(_ context.Context, request *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	return n.streams.GetPortForward(request)
}

func (s *streams) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	s.node.lock.Lock()
	pod := s.node.sandboxes[id]
	s.node.lock.Unlock()
	if pod == nil {
		return errors.New("the pod has ended")
	}
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(pod.address, strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	join(stream, connection)
	return nil
}

func (s *streams) Exec(context.Context, string, []string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errNoExec
}

func (s *streams) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errNoExec
}

// join carries bytes both ways until both ends have finished.
func join(a, b io.ReadWriteCloser) {
	done := make(chan struct{}, 2)
	carry := func(to, from io.ReadWriteCloser) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		} else {
			_ = to.Close()
		}
		done <- struct{}{}
	}
	go carry(a, b)
	go carry(b, a)
	<-done
	<-done
	_ = a.Close()
	_ = b.Close()
}
