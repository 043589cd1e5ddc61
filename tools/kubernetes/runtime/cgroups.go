package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Where cgroups of version 1 are; a machine without them enforces no limits.
const cgroupRoot = "/sys/fs/cgroup"

// The cgroups of a container: its limit of memory, its share of the CPU and its quota.
type cgroups struct {
	id string
}

func (g cgroups) folder(controller string) string {
	return filepath.Join(cgroupRoot, controller, "trawl-kubernetes", g.id)
}

func (g cgroups) make(limits *cri.LinuxContainerResources) error {
	values := map[string]map[string]int64{
		"memory": {"memory.limit_in_bytes": limits.GetMemoryLimitInBytes()},
		"cpu":    {"cpu.shares": limits.GetCpuShares(), "cpu.cfs_period_us": limits.GetCpuPeriod(), "cpu.cfs_quota_us": limits.GetCpuQuota()},
	}
	for controller, files := range values {
		if _, err := os.Stat(filepath.Join(cgroupRoot, controller, "cgroup.procs")); err != nil {
			continue
		}
		if err := os.MkdirAll(g.folder(controller), 0o755); err != nil {
			return err
		}
		for file, value := range files {
			if value <= 0 {
				continue
			}
			if err := os.WriteFile(filepath.Join(g.folder(controller), file), []byte(strconv.FormatInt(value, 10)), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// members are the files to which a process writes itself.
func (g cgroups) members() []string {
	return []string{filepath.Join(g.folder("memory"), "cgroup.procs"), filepath.Join(g.folder("cpu"), "cgroup.procs")}
}

// remove deletes the cgroups of a process that has ended, and returns whether it was killed for its memory.
func (g cgroups) remove() bool {
	control, _ := os.ReadFile(filepath.Join(g.folder("memory"), "memory.oom_control"))
	for _, controller := range []string{"memory", "cpu"} {
		_ = os.Remove(g.folder(controller))
	}
	for _, line := range strings.Split(string(control), "\n") {
		if kills, found := strings.CutPrefix(line, "oom_kill "); found {
			return kills != "0"
		}
	}
	return false
}
