package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Bytes of one line of a container's log; a longer one is split, as the format of CRI allows.
const logLineBytesMax = 16 << 10

// A container is one process of a pod, the first in a PID namespace of its own.
type container struct {
	id      string
	sandbox *sandbox
	config  *cri.ContainerConfig
	created int64
	spec    spec
	cgroups cgroups

	lock              sync.Mutex
	state             cri.ContainerState
	started, finished int64
	exitCode          int32
	killedForMemory   bool
	process           *os.Process
	ended             chan struct{}
}

func (n *node) CreateContainer(_ context.Context, request *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	n.lock.Lock()
	s := n.sandboxes[request.PodSandboxId]
	n.next2++
	id := fmt.Sprintf("n%dc%d", n.number, n.next2)
	n.lock.Unlock()
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %q", request.PodSandboxId)
	}
	of, err := n.images.find(request.Config.Image.Image)
	if err != nil {
		return nil, err
	}
	c := &container{
		id: id, sandbox: s, config: request.Config, created: now(),
		cgroups: cgroups{id: id},
		ended:   make(chan struct{}),
	}
	if c.spec, err = specOf(c, of); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := os.MkdirAll(c.spec.Root, 0o755); err != nil {
		return nil, err
	}
	n.lock.Lock()
	n.containers[id] = c
	n.lock.Unlock()
	return &cri.CreateContainerResponse{ContainerId: id}, nil
}

func (n *node) container(id string) (*container, error) {
	n.lock.Lock()
	defer n.lock.Unlock()
	if c := n.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "no container %q", id)
}

func (n *node) StartContainer(_ context.Context, request *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	c, err := n.container(request.ContainerId)
	if err != nil {
		return nil, err
	}
	if err := c.cgroups.make(c.config.Linux.GetResources()); err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go c.run(started)
	return &cri.StartContainerResponse{}, <-started
}

// run starts the process and waits for it, on one thread: the process is killed when the thread that made it ends.
func (c *container) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text, err := json.Marshal(c.spec)
	if err != nil {
		started <- err
		return
	}
	command := exec.Command("/proc/self/exe", "init")
	command.Env = []string{}
	input, output, err := os.Pipe()
	if err != nil {
		started <- err
		return
	}
	log, err := os.OpenFile(filepath.Join(c.sandbox.config.LogDirectory, c.config.LogPath), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		started <- err
		return
	}
	defer log.Close()
	stdout, _ := command.StdoutPipe()
	stderr, _ := command.StderrPipe()
	command.ExtraFiles = []*os.File{input}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	err = command.Start()
	_ = input.Close()
	if err != nil {
		_ = output.Close()
		started <- err
		return
	}
	_, _ = output.Write(text)
	_ = output.Close()
	c.lock.Lock()
	c.process, c.started, c.state = command.Process, now(), cri.ContainerState_CONTAINER_RUNNING
	c.lock.Unlock()
	started <- nil

	var copies sync.WaitGroup
	var writing sync.Mutex
	for name, from := range map[string]io.Reader{"stdout": stdout, "stderr": stderr} {
		copies.Add(1)
		go func() {
			defer copies.Done()
			copyLog(log, &writing, name, from)
		}()
	}
	copies.Wait()
	_ = command.Wait()
	killed := c.cgroups.remove()
	c.lock.Lock()
	c.finished, c.state, c.killedForMemory = now(), cri.ContainerState_CONTAINER_EXITED, killed
	if ended := command.ProcessState.Sys().(syscall.WaitStatus); ended.Signaled() {
		c.exitCode = 128 + int32(ended.Signal())
	} else {
		c.exitCode = int32(ended.ExitStatus())
	}
	c.lock.Unlock()
	close(c.ended)
}

// copyLog writes a stream in the format of CRI: time, stream, whether the line is whole, the line.
func copyLog(log io.Writer, writing *sync.Mutex, name string, from io.Reader) {
	reader := bufio.NewReaderSize(from, logLineBytesMax)
	for {
		line, err := reader.ReadSlice('\n')
		if len(line) > 0 {
			tag := "F"
			if errors.Is(err, bufio.ErrBufferFull) {
				tag = "P"
			}
			if line[len(line)-1] == '\n' {
				line = line[:len(line)-1]
			}
			writing.Lock()
			fmt.Fprintf(log, "%s %s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), name, tag, line)
			writing.Unlock()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// stop sends SIGTERM, and SIGKILL after so many seconds.
func (c *container) stop(seconds int64) {
	c.lock.Lock()
	process, running := c.process, c.state == cri.ContainerState_CONTAINER_RUNNING
	c.lock.Unlock()
	if !running {
		return
	}
	if seconds > 0 {
		_ = process.Signal(syscall.SIGTERM)
		select {
		case <-c.ended:
			return
		case <-time.After(time.Duration(seconds) * time.Second):
		}
	}
	_ = process.Kill()
	<-c.ended
}

func (n *node) StopContainer(_ context.Context, request *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	if c, err := n.container(request.ContainerId); err == nil {
		c.stop(request.Timeout)
	}
	return &cri.StopContainerResponse{}, nil
}

func (n *node) RemoveContainer(_ context.Context, request *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	if c, err := n.container(request.ContainerId); err == nil {
		c.stop(0)
		n.lock.Lock()
		delete(n.containers, c.id)
		n.lock.Unlock()
		_ = os.RemoveAll(c.spec.Root)
	}
	return &cri.RemoveContainerResponse{}, nil
}

func (n *node) ListContainers(_ context.Context, request *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	n.lock.Lock()
	defer n.lock.Unlock()
	answer, filter := &cri.ListContainersResponse{}, request.Filter
	for _, c := range n.containers {
		c.lock.Lock()
		state := c.state
		c.lock.Unlock()
		if filter != nil && (filter.Id != "" && filter.Id != c.id || filter.PodSandboxId != "" && filter.PodSandboxId != c.sandbox.id ||
			filter.State != nil && filter.State.State != state || !has(c.config.Labels, filter.LabelSelector)) {
			continue
		}
		answer.Containers = append(answer.Containers, &cri.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: c.config.Image, ImageRef: c.config.Image.Image,
			ImageId: c.config.Image.Image, State: state, CreatedAt: c.created, Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	sort.Slice(answer.Containers, func(a, b int) bool { return answer.Containers[a].CreatedAt > answer.Containers[b].CreatedAt })
	return answer, nil
}

func (n *node) ContainerStatus(_ context.Context, request *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	c, err := n.container(request.ContainerId)
	if err != nil {
		return nil, err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	reason := ""
	switch {
	case c.state != cri.ContainerState_CONTAINER_EXITED:
	case c.killedForMemory:
		reason = "OOMKilled"
	case c.exitCode == 0:
		reason = "Completed"
	default:
		reason = "Error"
	}
	return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state, CreatedAt: c.created, StartedAt: c.started, FinishedAt: c.finished,
		ExitCode: c.exitCode, Image: c.config.Image, ImageRef: c.config.Image.Image, ImageId: c.config.Image.Image, Reason: reason,
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts,
		LogPath:   filepath.Join(c.sandbox.config.LogDirectory, c.config.LogPath),
		Resources: &cri.ContainerResources{Linux: c.config.Linux.GetResources()},
	}}, nil
}

func (n *node) UpdateContainerResources(context.Context, *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	return &cri.UpdateContainerResourcesResponse{}, nil
}

func (n *node) ReopenContainerLog(context.Context, *cri.ReopenContainerLogRequest) (*cri.ReopenContainerLogResponse, error) {
	return &cri.ReopenContainerLogResponse{}, nil
}
