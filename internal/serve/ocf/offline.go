package ocf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/mortarhpc/mortar/internal/serve/refusal"
	"github.com/mortarhpc/mortar/internal/serve/unit"
)

// Actions on the volume of a service that every server has stopped. The agent brings the storage
// up as a start does, does not mount the volume, and takes the storage down again.
//
//	on-volume NAME [off=SERVER] COMMAND...   runs a command; {} in it stands for the volume's device
//	try-mount NAME [off=SERVER]              mounts an XFS as the service does, and unmounts it
//
// NAME is the mount point of an XFS, or the label of a target of Lustre. The caller knows that
// SERVER, which owns the volume group, is off.
const (
	OnVolume = "on-volume"
	TryMount = "try-mount"
)

// NotTried is the exit code of OnVolume and TryMount if the agent could not bring the storage up
// or take it down. All other codes are those of the command; 1 says that the mount failed.
const NotTried = 125

// Offline are the arguments of mortar for an action. off is the server that is off, or "".
func Offline(service, action, name, off string, tool ...string) []string {
	argv := []string{"ocf", "--config", ConfigPath(service), action, name}
	if off != "" {
		argv = append(argv, "off="+off)
	}
	if len(tool) > 0 {
		argv = append(append(argv, "--"), tool...)
	}
	return argv
}

// deviceLine begins what OnVolume prints: the device, and after that what the command prints.
const deviceLine = "device "

// Said is what the command of an OnVolume printed to stdout; an error if no command ran. An agent
// of a release before OnVolume ends with a code that may be one of the command's.
func Said(stdout string) (string, error) {
	first, rest, _ := strings.Cut(stdout, "\n")
	if !strings.HasPrefix(first, deviceLine) {
		return "", errors.New("mortar on this server is of an earlier release: run `mortar apply`")
	}
	return rest, nil
}

// offline carries out an action on the volume of a stopped service.
func (a *agent) offline(ctx context.Context, action, name string, args []string, stdout io.Writer) int {
	cfg, code, err := a.config(action)
	if err != nil {
		a.reason(err)
		return max(code, NotTried)
	}
	off := ""
	if len(args) > 0 && strings.HasPrefix(args[0], "off=") {
		off, args = strings.TrimPrefix(args[0], "off="), args[1:]
	}
	s, err := a.service(action, cfg)
	if err == nil {
		var held *os.File
		if held, err = lockedFile(ctx, cfg.Service); err == nil {
			defer held.Close()
			do := func(dev string) error {
				fmt.Fprintf(stdout, "%s%s\n", deviceLine, dev)
				code, err = runTool(filled(args, dev), held, stdout, a.stderr)
				return err
			}
			if action == TryMount {
				do = func(string) error {
					if err := s.mountOnce(ctx); err != nil {
						a.reason(err)
						code = ErrGeneric
					}
					return nil
				}
			}
			err = s.offline(ctx, name, off, do)
		}
	}
	if err != nil {
		a.reason(err)
		return NotTried
	}
	return code
}

// filled is a command with the device in the places of {}.
func filled(args []string, dev string) []string {
	argv := slices.Clone(args)
	for i, w := range argv {
		if w == "{}" || strings.HasSuffix(w, "={}") {
			argv[i] = strings.TrimSuffix(w, "{}") + dev
		}
	}
	return argv
}

// runTool runs a command to its end and gives its exit code. No signal of this process reaches
// the command: a killed e2fsck leaves a mark in the target's MMP block, and the target cannot be
// mounted any more. If this process is killed, the command keeps the service's lock until it ends.
//
// Source: e2fsck(8)
func runTool(argv []string, lock *os.File, stdout, stderr io.Writer) (code int, err error) {
	if len(argv) == 0 {
		return 0, errors.New("no command is given")
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdout, c.Stderr = stdout, stderr
	c.ExtraFiles = []*os.File{lock}
	signal.Ignore(syscall.SIGPIPE) // a command inherits that: it runs on when its output has no reader
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = c.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return 0, err
}

// mountOnce mounts the file system, which replays its log, and unmounts it.
func (s *service) mountOnce(ctx context.Context) error {
	mount := s.kind.Layers()[0]
	err := mount.Start(ctx)
	if serr := mount.Stop(context.WithoutCancel(ctx)); err == nil {
		err = serr
	}
	return err
}

// offline brings the storage of a stopped service up on this server, has do work on one of its
// volumes, and takes the storage down again. The error of do comes first.
func (s *service) offline(ctx context.Context, name, off string, do func(dev string) error) (err error) {
	volume, ok := s.kind.VolumeOf(name)
	if !ok {
		return refusal.New("no-volume", refusal.Args{"service": s.cfg.Service, "volume": name})
	}
	// Storage that is up is what an action left that was killed.
	if st, err := s.Check(); st == unit.Running || s.kind.Serving() {
		return refusal.New("not-stopped", refusal.Args{"service": s.cfg.Service, refusal.Why: err})
	}
	// A start would take the storage from the other server, which Pacemaker has fenced by then.
	others := func(by string) bool { return by != "" && by != s.cfg.SystemID && by != s.Node && by != off }
	if by, err := s.reserve.Holder(); err != nil || others(by) {
		return refusal.New("reserved", refusal.Args{"service": s.cfg.Service, "owner": by, refusal.Why: err})
	}
	defer s.resumeUdev()
	parts := s.parts()
	parts = parts[:len(parts)-len(s.kind.Layers())]
	defer func() {
		for _, p := range slices.Backward(parts) {
			if perr := p.Stop(context.WithoutCancel(ctx)); perr != nil && err == nil {
				err = fmt.Errorf("%s: %w", p.Name, perr)
			}
		}
	}()
	for _, p := range parts {
		if p.Name == "volume" {
			if owner, err := s.owner(); err != nil || others(owner) {
				return refusal.New("owned", refusal.Args{"vg": s.cfg.VG, "owner": owner, refusal.Why: err})
			}
		}
		if err := p.Start(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	dev, _, err := s.On(volume)
	if err != nil || dev == "" {
		return fmt.Errorf("%s is not active: %w", s.Called(volume), err)
	}
	s.resumeUdev() // a command may take hours
	return do(s.VolumePath(dev))
}
