package main

import (
	"context"
	"encoding/json"
	"os"
	"sort"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// An image is a table's row: files of this machine at the places where the image has them.
type image struct {
	Files      map[string]string `json:"files"`
	Entrypoint []string          `json:"entrypoint"`
	Command    []string          `json:"command"`
	Environ    []string          `json:"environment"`
	// The user that the image names, root without one.
	User int64 `json:"user"`
	// Directories that belong to that user.
	Directories []string `json:"directories"`
}

type images struct {
	cri.UnimplementedImageServiceServer
	path, root string
	// What was pulled. Nothing is transferred; the kubelet sees the same steps as elsewhere.
	lock   sync.Mutex
	pulled map[string]bool
}

func (s *images) has(name string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.pulled[name]
}

func (s *images) set(name string, pulled bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.pulled[name] = pulled
}

// The table is read anew each time: an upgrade adds a row.
func (s *images) table() (map[string]image, error) {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return nil, err
	}
	table := map[string]image{}
	return table, json.Unmarshal(text, &table)
}

func (s *images) find(name string) (image, error) {
	table, err := s.table()
	if err != nil {
		return image{}, err
	}
	found, ok := table[name]
	if !ok {
		return image{}, status.Errorf(codes.NotFound, "no image %q in the node's table", name)
	}
	return found, nil
}

func (s *images) describe(name string, of image) *cri.Image {
	return &cri.Image{Id: name, RepoTags: []string{name}, Size: 1, Uid: &cri.Int64Value{Value: of.User}, Spec: &cri.ImageSpec{Image: name}}
}

func (s *images) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	table, err := s.table()
	if err != nil {
		return nil, err
	}
	answer := &cri.ListImagesResponse{}
	for name, of := range table {
		if s.has(name) {
			answer.Images = append(answer.Images, s.describe(name, of))
		}
	}
	sort.Slice(answer.Images, func(a, b int) bool { return answer.Images[a].Id < answer.Images[b].Id })
	return answer, nil
}

func (s *images) ImageStatus(_ context.Context, request *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	of, err := s.find(request.Image.Image)
	if err != nil || !s.has(request.Image.Image) {
		return &cri.ImageStatusResponse{}, nil
	}
	return &cri.ImageStatusResponse{Image: s.describe(request.Image.Image, of)}, nil
}

func (s *images) PullImage(_ context.Context, request *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	if _, err := s.find(request.Image.Image); err != nil {
		return nil, err
	}
	s.set(request.Image.Image, true)
	return &cri.PullImageResponse{ImageRef: request.Image.Image}, nil
}

func (s *images) RemoveImage(_ context.Context, request *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	s.set(request.Image.Image, false)
	return &cri.RemoveImageResponse{}, nil
}

func (s *images) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	usage := []*cri.FilesystemUsage{{
		Timestamp:  now(),
		FsId:       &cri.FilesystemIdentifier{Mountpoint: s.root},
		UsedBytes:  &cri.UInt64Value{},
		InodesUsed: &cri.UInt64Value{},
	}}
	return &cri.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}
