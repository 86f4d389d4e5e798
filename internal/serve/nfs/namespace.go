package nfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// A service with a network namespace has the service address there, on an
// interface of its own, and nfsd with its daemons. Each of the daemons, and
// each tool that speaks to them, is run in a mount namespace in which the
// usual places are the service's: /var/lib/nfs is the state on the volume,
// /proc/fs/nfsd its nfsd, /run a directory of its own, for rpcbind's socket,
// for rpc_pipefs and for files with process IDs. The kernel's side can be
// looked at from the host as well, below NamespaceDir.

// publicLink is the name of the service's interface in its namespace.
const publicLink = "public"

// NamespaceDir is where what belongs to a network namespace of a service is
// found on the host: nfsd/ is its nfsd as /proc/fs/nfsd, run/ its daemons'
// /run.
func NamespaceDir(namespace string) string { return unit.RunDir + "/" + namespace }

// NFSDDir is where the files of a service's nfsd are found on the host.
// Source: nfsd(7).
func NFSDDir(namespace string) string {
	if namespace == "" {
		return nfsdFS
	}
	return NamespaceDir(namespace) + "/nfsd"
}

func (s *server) NfsdDir() string { return NFSDDir(s.cfg.Namespace) }

func (s *server) Pipefs() string {
	at := s.Distro().PipeFS
	if s.cfg.Namespace != "" {
		at = NamespaceDir(s.cfg.Namespace) + at
	}
	return at
}

// binds are what a daemon or a tool of the service sees in place of the
// host's own.
func (s *server) binds() []kernel.Bind {
	if s.cfg.Namespace == "" {
		return nil
	}
	run := NamespaceDir(s.cfg.Namespace) + "/run"
	return []kernel.Bind{
		{From: s.cfg.StateDir, At: nfsDir},
		{From: s.NfsdDir(), At: nfsdFS},
		{From: "/run/systemd", At: run + "/systemd"}, // the journal's socket
		{From: run, At: "/run"},                      // last: it hides what the others come from
	}
}

// namespace tells the service's network namespace, "" if there is none now.
func (s *server) namespace() (string, error) {
	if s.cfg.Namespace == "" {
		return "", nil
	}
	id, err := s.K.Namespace(s.cfg.Namespace)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return id, err
}

func (s *state) namespaceState() (unit.State, error) {
	id, err := s.namespace()
	if err != nil {
		return unit.Broken, err
	}
	if id == "" {
		return unit.Stopped, nil
	}
	if _, err := s.In.Link(publicLink); err != nil {
		return unit.Broken, fmt.Errorf("namespace %s: %w", s.cfg.Namespace, err)
	}
	return unit.Running, nil
}

func (s *state) startNamespace(context.Context) error {
	if st, err := s.namespaceState(); err == nil && st == unit.Running {
		return nil
	}
	parent, err := s.Iface()
	if err != nil {
		return err
	}
	// Half there: nothing has run in it.
	if err := s.K.DelNamespace(s.cfg.Namespace, publicLink); err != nil {
		return err
	}
	if err := s.K.AddNamespace(s.cfg.Namespace, publicLink, parent); err != nil {
		return err
	}
	_, err = s.namespaceState()
	return err
}

func (s *state) stopNamespace(context.Context) error {
	return s.K.DelNamespace(s.cfg.Namespace, publicLink)
}

// endInside ends what is left in the service's mount namespaces: a process
// whose /var/lib/nfs is the volume's keeps the file system alive even if all
// of the host's mounts are gone.
func (s *state) endInside(ctx context.Context) error {
	for try := 0; ; try++ {
		pids := s.inside()
		if len(pids) == 0 {
			return nil
		}
		sig := unix.SIGTERM
		if try >= 20 { // 1 s
			sig = unix.SIGKILL
		}
		if try == 0 || sig == unix.SIGKILL {
			for _, pid := range pids {
				s.Log.Note("%s still runs in namespace %s: signal %d to process %d", s.Line("/proc/"+strconv.Itoa(pid)+"/comm"), s.cfg.Namespace, sig, pid)
				if err := s.K.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
					return fmt.Errorf("process %d: %w", pid, err)
				}
			}
		}
		if try == 80 || s.K.Sleep(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("process %d in namespace %s does not end", pids[0], s.cfg.Namespace)
		}
	}
}

// inside are the processes that see the service's state on the volume as
// their /var/lib/nfs.
func (s *state) inside() []int {
	devno, _, err := s.stateAt()
	if err != nil || devno == "" {
		return nil
	}
	// Nearly all processes, nfsd's threads among them, see what the agent sees.
	own, _ := s.K.Readlink("/proc/self/ns/mnt")
	var out []int
	for _, pid := range s.Pids() {
		if pid == s.Self {
			continue
		}
		if in, err := s.K.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/mnt"); err == nil && in == own {
			continue
		}
		b, err := s.K.ReadFile("/proc/" + strconv.Itoa(pid) + "/mountinfo")
		if err != nil {
			continue // it has ended
		}
		if slices.ContainsFunc(linux.ParseMountInfo(string(b)), func(m linux.Mount) bool {
			return m.Dev == devno && m.Target == nfsDir
		}) {
			out = append(out, pid)
		}
	}
	return out
}

// kernelMounts mounts what nfsd and its daemons talk through.
func (s *server) kernelMounts() error {
	for _, m := range []linux.Mount{{Type: "rpc_pipefs", Source: "sunrpc", Target: s.Pipefs()}, {Type: "nfsd", Source: "nfsd", Target: s.NfsdDir()}} {
		all, err := s.Mounts()
		if err != nil {
			return err
		}
		if have := unit.MountedAt(all, m.Target); have != nil && have.Type == m.Type {
			continue
		}
		if m.Target != nfsdFS {
			if err := s.K.Mkdir(m.Target, 0o755, 0, 0); err != nil {
				return err
			}
		}
		if err := s.In.Mount(m.Source, m.Target, m.Type, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	return nil
}

// ownState says whether the places of a service with a namespace are there.
func (s *server) ownState() (unit.State, error) {
	all, err := s.Mounts()
	if err != nil {
		return unit.Broken, err
	}
	up := 0
	for _, target := range []string{s.Pipefs(), s.NfsdDir()} {
		if unit.MountedAt(all, target) != nil {
			up++
		}
	}
	switch up {
	case 0:
		return unit.Stopped, nil
	case 2:
		return unit.Running, nil
	}
	return unit.Broken, fmt.Errorf("of %s and %s one is not mounted", s.Pipefs(), s.NfsdDir())
}

func (s *state) stopOwnState(ctx context.Context) error {
	if err := s.endInside(ctx); err != nil {
		return err
	}
	all, err := s.Mounts()
	if err != nil {
		return err
	}
	for _, target := range []string{s.NfsdDir(), s.Pipefs()} {
		for try := 0; unit.MountedAt(all, target) != nil; try++ {
			err := s.K.Unmount(target)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) || try == 20 || s.K.Sleep(ctx, 250*time.Millisecond) != nil {
				return fmt.Errorf("umount %s: %w", target, err)
			}
		}
	}
	return nil
}
