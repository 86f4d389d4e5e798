package rack

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/power"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// ServePDU is the hidden command that snmpd runs to answer for a PDU: it speaks the
// pass_persist protocol on in and out, and ends when snmpd does.
//
// Source: snmpd.conf(5), "MIB-Specific Extension Commands".
func ServePDU(ctx context.Context, dir, name string, in io.Reader, out io.Writer) error {
	r, err := openChild(dir)
	if err != nil {
		return err
	}
	p, err := r.cfg.PDU(name)
	if err != nil {
		return err
	}
	table := func() ([]power.Object, error) {
		h, err := loadHardware(r.dir)
		if err != nil {
			return nil, err
		}
		return power.Objects(p, h.LoadOf(r.cfg, name), func(o int) string { return r.cfg.OutletName(name, o) },
			func(o int) bool { return !h.Off[hw.OutletKey(name, o)] }), nil
	}
	return power.ServePass(in, out, table, func(outlet int, on bool) error {
		return r.setOutlets(ctx, name, outlet, on)
	})
}

// ensurePDU starts a PDU's controller unless it runs or is dead. The caller
// holds the power lock.
func ensurePDU(ctx context.Context, r *rack, p *hw.PDU, h *hw.Hardware) error {
	name := pduName(p.Name)
	if h.DeadPDUs[p.Name] || tool.Running(r.dir, name) != nil {
		return nil
	}
	var secrets []string
	for _, file := range p.Secrets() {
		s, err := tool.EnsureSecret(*file)
		if err != nil {
			return err
		}
		secrets = append(secrets, s)
	}
	// snmpd keeps users there, with the pass phrases of their creation.
	state := filepath.Join(tool.RunDir(r.dir), name+".state")
	if err := os.RemoveAll(state); err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	if err := renameio.WriteFile(tool.ConfFile(r.dir, name), []byte(power.SNMPConfig(p, secrets)), 0o600); err != nil {
		return err
	}
	if err := r.hostAddress(ctx, p.Address, true); err != nil {
		return err
	}
	// -I: only the modules for identity, users and pass_persist.
	return tool.StartDaemon(ctx, r.dir, r.cfg.Netns(), name, func() bool { return r.listensUDP(p.Address, 161) }, "snmpd", "-f", "-Lo", "-C", "-c", tool.ConfFile(r.dir, name),
		"-I", "system_mib,sysORTable,pass,pass_persist,override,snmpEngine,usmConf,vacm_conf,vacm_context")
}

func stopPDU(ctx context.Context, r *rack, p *hw.PDU) error {
	if err := tool.Stop(r.dir, pduName(p.Name)); err != nil {
		return err
	}
	return r.hostAddress(ctx, p.Address, false)
}
