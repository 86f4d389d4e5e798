package rack

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/nodeimage"
	"github.com/mortarhpc/mortar/internal/rack/power"
	"github.com/mortarhpc/mortar/internal/rack/qemu"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// DryRun returns the commands that Up would run for this rack in dir, and the files
// that it would make. It changes nothing, and refuses whatever Up refuses.
func DryRun(cfg hw.Config, dir string) ([]string, error) {
	cfg, dir, spec, err := accept(cfg, dir)
	if err != nil {
		return nil, err
	}
	cache, err := nodeimage.CacheDir()
	if err != nil {
		return nil, err
	}
	img := &nodeimage.Image{Dir: filepath.Join(cache, spec.Key())}
	var out []string
	if nodeimage.Cached(img.Dir) == nil {
		out = append(out, "build image "+img.Dir+": "+spec.Suite+" from "+spec.Mirror+" with "+strings.Join(spec.Packages(), " "))
	}
	if cfg.Distribution() && !tool.Exists(spec.DiskFile(cache)) {
		out = append(out, "build system disk "+spec.DiskFile(cache)+": Debian's kernel, initramfs and GRUB")
	}
	out = append(out, "ip netns add "+cfg.Netns())
	for _, c := range networkCommands(&cfg, dir) {
		out = append(out, "ip -n "+cfg.Netns()+" "+c)
	}
	for _, d := range cfg.Images() {
		out = append(out, "create "+hw.DiskImage(dir, d.Name)+" "+strconv.FormatInt(d.Bytes, 10)+" bytes")
	}
	for _, p := range cfg.PDUs {
		out = append(out, "run snmpd -f -Lo -C -c "+tool.ConfFile(dir, pduName(p.Name)))
	}
	accel := cfg.Accel
	if accel == "" {
		accel = "tcg" // or kvm, if a kernel boots with it
	}
	for _, e := range cfg.Arrays() {
		args, err := qemu.ArrayArgs(&cfg, dir, e, img, accel, &hw.Hardware{})
		if err != nil {
			return nil, err
		}
		out = append(out, "create "+hw.ArrayState(dir, e.Name)+" "+strconv.Itoa(hw.ArrayStateBytes)+" bytes", shellLine(args),
			"run mortar rack _fabric "+dir+" "+e.Name)
	}
	for i, n := range cfg.Nodes {
		for _, d := range hw.SystemDisksOf(dir, &n) {
			out = append(out, "create "+d.Image+" "+strconv.FormatInt(d.Bytes, 10)+" bytes")
		}
		if n.BMC != nil {
			out = append(out, "run ipmi_sim -c "+tool.ConfFile(dir, power.BMCName(n.Name)))
		}
		args, err := qemu.NodeArgs(&cfg, dir, i, img, accel, &hw.Hardware{}, 0)
		if err != nil {
			return nil, err
		}
		out = append(out, shellLine(args))
	}
	return append(out, "create "+inventoryFile(dir)), nil
}

// shellLine is the command line of a machine, quoted for a shell.
func shellLine(args []string) string {
	for j, a := range args {
		if strings.ContainsAny(a, " \"{}") {
			args[j] = "'" + a + "'"
		}
	}
	return "run qemu-system-x86_64 " + strings.Join(args, " ")
}
