package rack

import (
	"path/filepath"
	"strconv"
	"strings"
)

// DryRun returns the commands that Up would run for this rack in dir, and the files
// that it would make. It changes nothing, and refuses whatever Up refuses.
func DryRun(cfg Config, dir string) ([]string, error) {
	cfg, dir, spec, err := accept(cfg, dir)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	img := &image{Dir: filepath.Join(cache, spec.key())}
	var out []string
	if cachedImage(img.Dir) == nil {
		out = append(out, "build image "+img.Dir+": "+spec.Suite+" from "+spec.Mirror+" with "+strings.Join(spec.packages(), " "))
	}
	if cfg.distribution() && !there(spec.diskFile(cache)) {
		out = append(out, "build system disk "+spec.diskFile(cache)+": Debian's kernel, initramfs and GRUB")
	}
	out = append(out, "ip netns add "+cfg.netns())
	for _, c := range networkCommands(&cfg, dir) {
		out = append(out, "ip -n "+cfg.netns()+" "+c)
	}
	for _, d := range cfg.images() {
		out = append(out, "create "+diskImage(dir, d.Name)+" "+strconv.FormatInt(d.Bytes, 10)+" bytes")
	}
	for _, p := range cfg.PDUs {
		out = append(out, "run snmpd -f -Lo -C -c "+confFile(dir, pduName(p.Name)))
	}
	accel := cfg.Accel
	if accel == "" {
		accel = "tcg" // or kvm, if a kernel boots with it
	}
	for _, e := range cfg.arrays() {
		args, err := arrayArgs(&cfg, dir, e, img, accel, &hardware{})
		if err != nil {
			return nil, err
		}
		out = append(out, "create "+arrayState(dir, e.Name)+" "+strconv.Itoa(arrayStateBytes)+" bytes", shown(args),
			"run mortar rack _fabric "+dir+" "+e.Name)
	}
	for i, n := range cfg.Nodes {
		for _, d := range systemDisksOf(dir, &n) {
			out = append(out, "create "+d.Image+" "+strconv.FormatInt(d.Bytes, 10)+" bytes")
		}
		if n.BMC != nil {
			out = append(out, "run ipmi_sim -c "+confFile(dir, bmcName(n.Name)))
		}
		args, err := nodeArgs(&cfg, dir, i, img, accel, &hardware{}, 0)
		if err != nil {
			return nil, err
		}
		out = append(out, shown(args))
	}
	return append(out, "create "+inventoryFile(dir)), nil
}

// shown is the command line of a machine, quoted for a shell.
func shown(args []string) string {
	for j, a := range args {
		if strings.ContainsAny(a, " \"{}") {
			args[j] = "'" + a + "'"
		}
	}
	return "run qemu-system-x86_64 " + strings.Join(args, " ")
}
