package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// Streams of `kubectl port-forward`, to the pod's address, and of `kubectl exec`. There are none for attach, and no terminals.
type streams struct {
	streaming.Server
	node *node
}

// How long the streams of a command may stay open after its end.
const execWait = 5 * time.Second

var errNoAttach = errors.New("this runtime carries no attach and no terminals")

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

func (n *node) Exec(_ context.Context, request *cri.ExecRequest) (*cri.ExecResponse, error) {
	return n.streams.GetExec(request)
}

// Exec runs a command beside the container's program, as its user.
func (s *streams) Exec(
	ctx context.Context, id string, words []string, in io.Reader, out, complaints io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize,
) error {
	if tty {
		return errNoAttach
	}
	c, err := s.node.container(id)
	if err != nil {
		return err
	}
	c.lock.Lock()
	process := c.process
	c.lock.Unlock()
	if process == nil {
		return errors.New("the container does not run")
	}
	enter := []string{"--target", strconv.Itoa(process.Pid), "--mount", "--net", "--uts", "--ipc", "--pid", "--root", "--wd"}
	enter = append(enter, "--setuid", strconv.Itoa(c.spec.User), "--setgid", strconv.Itoa(c.spec.Group), "--")
	command := exec.CommandContext(ctx, "nsenter", append(enter, words...)...)
	command.Env, command.Stdin, command.Stdout, command.Stderr = c.spec.Environ, in, out, complaints
	// A client may keep its end open after the command has ended.
	command.WaitDelay = execWait
	err = command.Run()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		return utilexec.CodeExitError{Err: err, Code: ended.ExitCode()}
	}
	return err
}

func (s *streams) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errNoAttach
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
