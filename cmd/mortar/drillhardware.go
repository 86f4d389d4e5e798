package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/drill"
	"github.com/mortarhpc/mortar/internal/resource"
	"github.com/mortarhpc/mortar/internal/spec"
)

// sysrqGrace is how long a server is given to die of a SysRq crash before
// its silence counts as that.
const sysrqGrace = 5 * time.Second

func (h *hardwareInjector) Can(f drill.Fault) error {
	switch f.Kind {
	case drill.Panic:
		return nil
	case drill.PowerOff:
		if _, err := exec.LookPath("ipmitool"); err != nil {
			return errors.New("ipmitool is not installed on this machine (apt-get install ipmitool)")
		}
		return nil
	case drill.Freeze:
		return errors.New("a real server cannot be frozen from outside; use --how panic or --how power")
	}
	return fmt.Errorf("there is no way to inject %q on real hardware", f.Kind)
}

func (h *hardwareInjector) Inject(ctx context.Context, f drill.Fault) error {
	target := f.On
	switch f.Kind {
	case drill.Panic:
		s, err := h.dial(ctx, target)
		if err != nil {
			return err
		}
		defer s.Close()
		cctx, cancel := context.WithTimeout(ctx, sysrqGrace)
		defer cancel()
		// Source: Documentation/admin-guide/sysrq.rst: 'c' panics at once, so
		// no answer is the answer.
		a := resource.Action{Title: "panic the kernel", Cmd: []string{"tee", "/proc/sysrq-trigger"}, Stdin: []byte("c")}
		if err := s.Call(cctx, "run", map[string]any{"action": a}, nil, nil); err == nil {
			return errors.New("the kernel did not panic on SysRq c")
		} else if ctx.Err() != nil {
			return ctx.Err()
		}
		return nil
	case drill.PowerOff:
		return h.ipmi(ctx, target, "off")
	}
	return h.Can(f)
}

// Heal switches a server on that is off; one that runs is left alone.
func (h *hardwareInjector) Heal(ctx context.Context, f drill.Fault) error {
	target := f.On
	if b, err := h.bmc(target); err != nil || b == nil {
		return err // without a BMC only its fence devices can switch it, and they did
	}
	return h.ipmi(ctx, target, "on")
}

func (h *hardwareInjector) bmc(target string) (*spec.BMC, error) {
	for _, s := range h.design.Spec.Servers {
		if s.Name == target {
			return s.BMC, nil
		}
	}
	return nil, fmt.Errorf("%s is no server of the brick", target)
}

// ipmi switches a server's power. Source: ipmitool(1)
func (h *hardwareInjector) ipmi(ctx context.Context, target, power string) error {
	b, err := h.bmc(target)
	if err != nil {
		return err
	}
	if b == nil {
		return fmt.Errorf("%s has no BMC in the spec", target)
	}
	file := b.PasswordFile
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(h.design.Spec.File), file)
	}
	cmd := exec.CommandContext(ctx, "ipmitool", "-I", "lanplus", "-C", fmt.Sprint(b.Cipher), "-H", b.Address, "-U", b.User, "-f", file, "chassis", "power", power)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("BMC of %s: power %s: %w: %s", target, power, err, strings.TrimSpace(out.String()))
	}
	return nil
}
