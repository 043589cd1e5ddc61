package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What is needed of the machine to run its programs: libraries, zones of time, authorities. No other programs, and no shell.
var systemFolders = []string{"/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/usr/share/ca-certificates", "/etc/ssl", "/etc/ld.so.cache"}

// Devices that every container has.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// A spec is what a container's first process does before it becomes the container's program.
type spec struct {
	Root, Network, Hostname, Folder string
	Command, Environ, Directories   []string
	Mounts                          []bind
	ReadOnly, NoNewPrivileges       bool
	DropCapabilities                bool
	User, Group                     int
	Groups                          []int
	Cgroups                         []string
}

type bind struct {
	From, To string
	ReadOnly bool
}

// specOf follows the rules of images: the pod's command replaces the entrypoint and the arguments of the image.
func specOf(c *container, of image) (spec, error) {
	config, security := c.config, c.config.Linux.GetSecurityContext()
	if security.GetNamespaceOptions().GetNetwork() == cri.NamespaceMode_NODE || security.GetPrivileged() {
		return spec{}, fmt.Errorf("this runtime has no host network and no privileged containers")
	}
	made := spec{
		Root:             filepath.Join(c.sandbox.folder, c.id),
		Network:          "/run/netns/" + c.sandbox.id,
		Hostname:         c.sandbox.config.Hostname,
		Folder:           config.WorkingDir,
		Directories:      of.Directories,
		ReadOnly:         security.GetReadonlyRootfs(),
		NoNewPrivileges:  security.GetNoNewPrivs(),
		DropCapabilities: slices.Contains(security.GetCapabilities().GetDropCapabilities(), "ALL"),
		User:             int(of.User),
		Group:            int(of.User),
		Cgroups:          c.cgroups.members(),
	}
	if user := security.GetRunAsUser(); user != nil {
		made.User = int(user.Value)
	}
	if group := security.GetRunAsGroup(); group != nil {
		made.Group = int(group.Value)
	}
	for _, group := range security.GetSupplementalGroups() {
		made.Groups = append(made.Groups, int(group))
	}
	made.Command = append(append([]string{}, config.Command...), config.Args...)
	if len(config.Command) == 0 {
		arguments := config.Args
		if len(arguments) == 0 {
			arguments = of.Command
		}
		made.Command = append(append([]string{}, of.Entrypoint...), arguments...)
	}
	if len(made.Command) == 0 {
		return spec{}, fmt.Errorf("neither the pod nor its image has a command")
	}
	environ := append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/"}, of.Environ...)
	for _, pair := range config.Envs {
		environ = append(environ, pair.Key+"="+string(pair.Value))
	}
	// The pod's take the place of the image's: a program that looks for a name would find the first.
	for at, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		again := func(later string) bool { return strings.HasPrefix(later, name+"=") }
		if !slices.ContainsFunc(environ[at+1:], again) {
			made.Environ = append(made.Environ, pair)
		}
	}
	for _, folder := range systemFolders {
		made.Mounts = append(made.Mounts, bind{folder, folder, true})
	}
	for to, from := range of.Files {
		made.Mounts = append(made.Mounts, bind{from, to, true})
	}
	made.Mounts = append(made.Mounts, bind{filepath.Join(c.sandbox.folder, "resolv.conf"), "/etc/resolv.conf", true})
	for _, mount := range config.Mounts {
		made.Mounts = append(made.Mounts, bind{mount.HostPath, mount.ContainerPath, mount.Readonly})
	}
	// Outer mounts first; of equal ones the pod's are later.
	depth := func(b bind) int { return strings.Count(filepath.Clean(b.To), "/") }
	sort.SliceStable(made.Mounts, func(a, b int) bool { return depth(made.Mounts[a]) < depth(made.Mounts[b]) })
	return made, nil
}

// initContainer is the first process of a container: it makes the root, gives up rights, and becomes the program.
func initContainer() error {
	runtime.LockOSThread()
	input := os.NewFile(3, "spec")
	var s spec
	if err := json.NewDecoder(input).Decode(&s); err != nil {
		return err
	}
	_ = input.Close()
	for _, file := range s.Cgroups {
		if err := os.WriteFile(file, []byte("0"), 0o644); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	network, err := os.Open(s.Network)
	if err != nil {
		return err
	}
	if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	_ = network.Close()
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return err
	}
	if err := s.enterRoot(); err != nil {
		return err
	}
	if s.DropCapabilities {
		for capability := 0; capability <= unix.CAP_LAST_CAP; capability++ {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0)
		}
	}
	if err := syscall.Setgroups(s.Groups); err != nil {
		return err
	}
	if err := syscall.Setgid(s.Group); err != nil {
		return err
	}
	if err := syscall.Setuid(s.User); err != nil {
		return err
	}
	// Another user's process has lost it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if s.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	os.Clearenv()
	for _, pair := range s.Environ {
		name, value, _ := strings.Cut(pair, "=")
		_ = os.Setenv(name, value)
	}
	program, err := exec.LookPath(s.Command[0])
	if err != nil {
		return err
	}
	return syscall.Exec(program, s.Command, s.Environ)
}

// enterRoot makes a root in memory with the machine's folders, the image's files and the pod's volumes, and enters it.
func (s *spec) enterRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", s.Root, "tmpfs", 0, "mode=755,size=64m"); err != nil {
		return err
	}
	inside := func(path string) string { return filepath.Join(s.Root, path) }
	for _, folder := range []string{"/proc", "/dev", "/tmp", "/etc"} {
		if err := os.MkdirAll(inside(folder), 0o755); err != nil {
			return err
		}
	}
	_ = os.Chmod(inside("/tmp"), 0o777|os.ModeSticky)
	for _, folder := range []string{"bin", "sbin", "lib", "lib64"} {
		_ = os.Symlink("usr/"+folder, inside(folder))
	}
	users := fmt.Sprintf("root:x:0:0::/:/\ncontainer:x:%d:%d::/:/\n", s.User, s.Group)
	if err := os.WriteFile(inside("/etc/passwd"), []byte(users), 0o644); err != nil {
		return err
	}
	for _, folder := range s.Directories {
		if err := os.MkdirAll(inside(folder), 0o755); err != nil {
			return err
		}
		_ = os.Chown(inside(folder), s.User, s.Group)
	}
	if err := unix.Mount("proc", inside("/proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	mounts := s.Mounts
	for _, device := range devices {
		mounts = append(mounts, bind{"/dev/" + device, "/dev/" + device, false})
	}
	for _, mount := range mounts {
		if err := mountAt(mount.From, inside(mount.To), mount.ReadOnly); err != nil {
			return fmt.Errorf("mount %s at %s: %w", mount.From, mount.To, err)
		}
	}
	old := inside("/.old")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(s.Root, old); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/.old", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Remove("/.old"); err != nil {
		return err
	}
	if s.ReadOnly {
		if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return err
		}
	}
	if s.Folder != "" {
		return os.Chdir(s.Folder)
	}
	return nil
}

func mountAt(from, to string, readOnly bool) error {
	what, err := os.Stat(from)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	if what.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		if _, missing := os.Stat(to); missing != nil {
			err = os.WriteFile(to, nil, 0o644)
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil || !readOnly {
		return err
	}
	return unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
}
