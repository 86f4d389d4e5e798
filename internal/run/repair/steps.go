package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/screen"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/run/observe"
	"github.com/mortarhpc/mortar/internal/run/procedure"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

type step = procedure.Step

// act is a step that runs a command on the server that works.
func (j *job) act(title string, seconds int, argv ...string) step {
	return step{Title: title, On: j.on, Action: &resource.Action{Title: title, Cmd: argv, Seconds: seconds}}
}

// tool is a step that runs a command on the volume's device, in the place of {}. On a pair the
// agent brings the storage up for it; on a single server it is up. judge gets the exit code and
// what the command printed.
func (j *job) tool(title string, ok []int, judge func(code int, text string) (string, error), argv ...string) step {
	if j.pair.HA == nil {
		for i, w := range argv {
			argv[i] = strings.Replace(w, "{}", j.svc.Storage.Mounted(), 1)
		}
	} else {
		argv = append([]string{resource.MortarCommand}, ocf.Offline(j.svc.Name, ocf.OnVolume, j.svc.MountPoint, j.off, argv...)...)
	}
	s := j.act(title, long, argv...)
	s.Action.OKCodes = ok
	s.Judge = func(out resource.Output) (string, error) {
		text := out.Stdout
		if j.pair.HA != nil {
			var err error
			if text, err = ocf.Said(text); err != nil {
				return "", err
			}
		}
		return judge(out.Code, text+withoutNotes(out.Stderr))
	}
	return s
}

// crm is a step that has the cluster change what it does with the service.
func (j *job) crm(title string, args ...string) step {
	return j.act(title, 0, append([]string{"crm_resource", "--resource", j.id}, args...)...)
}

// look is the plan that stops the service, and finds whether its file system is damaged.
func (j *job) look() *procedure.Plan {
	p := &procedure.Plan{What: fmt.Sprintf("stop service %s and look at its file system on %s", j.svc.Name, j.on), Via: j.on}
	p.Steps = append(j.stop(), j.estimate(), j.find("look at the file system, and change nothing", &j.damaged))
	p.Notes = []string{
		fmt.Sprintf("clients of service %s wait until it is started again", j.svc.Name),
		"xfs_repair -n reads all metadata: minutes for ten million files, and longer on a volume of few disks",
	}
	return p
}

// stop stops the service, and keeps it stopped. Pacemaker starts it nowhere then, not after a boot
// of a server either; and a probe that finds storage without its service has no consequence.
func (j *job) stop() []step {
	if j.pair.HA == nil {
		unit := mountUnit(j.svc.MountPoint)
		first := j.act("stop the NFS server", 300, "systemctl", "stop", "nfs-server.service")
		first.Judge = j.stopping
		return []step{first,
			j.act("keep "+j.svc.MountPoint+" from being mounted, also by a boot", 0, "systemctl", "mask", unit),
			j.act("unmount "+j.svc.MountPoint, 600, "systemctl", "stop", unit)}
	}
	first := j.crm("stop service "+j.svc.Name, "--meta", "--set-parameter", "target-role", "--parameter-value", "Stopped")
	first.Judge = j.stopping
	return []step{first,
		{Title: "wait until no server has it", Twice: true, Until: func(s *observe.Snapshot) (bool, string, error) {
			switch st, err := procedure.Current(s, j.svc.Name, func(observe.Failure) bool { return false }); {
			case err != nil:
				return false, "", err
			case st.Server != "":
				return false, fmt.Sprintf("%s is %s on %s", j.svc.Name, strings.ToLower(st.Role), st.Server), nil
			}
			return true, j.svc.Name + " is stopped", nil
		}},
		j.crm("have the cluster leave it alone", "--meta", "--set-parameter", "is-managed", "--parameter-value", "false")}
}

func (j *job) stopping(resource.Output) (string, error) {
	j.stopped = true
	return "", nil
}

// held says whether a repair of a single server keeps the file system from being mounted.
func (j *job) held(ctx context.Context, node string) bool {
	out, err := j.hosts.Session(node).Query(ctx, "systemctl", "is-enabled", mountUnit(j.svc.MountPoint))
	return err == nil && strings.TrimSpace(out.Stdout) == "masked"
}

// estimate asks xfs_repair for the memory that it needs: with too little allowed, it names that and
// ends.
func (j *job) estimate() step {
	return j.tool("find how much memory and time xfs_repair needs", []int{1}, func(_ int, text string) (string, error) {
		j.began = time.Now()
		j.need = parseNeed(text)
		if !j.need.known {
			return "unknown: the first superblock is damaged", nil
		}
		said := fmt.Sprintf("%d inodes: it needs %s of memory, and in the order of %s", j.need.inodes, binary(j.need.memory), rough(j.need.time(j.disks())))
		if free := j.ram + j.swap; free < j.need.memory {
			return "", fmt.Errorf("%s; %s has %s and %s of swap free. Make swap there: `fallocate -l %dG /var/swap-repair && chmod 600 /var/swap-repair && mkswap /var/swap-repair && swapon /var/swap-repair`",
				said, j.on, binary(j.ram), binary(j.swap), (j.need.memory-free)>>30+1)
		}
		return said, nil
	}, "xfs_repair", "-n", "-vv", "-m", "1", "{}")
}

// disks are the disks that read for the service's volume.
func (j *job) disks() int {
	n := 0
	for i := range j.d.Disks {
		if s := j.d.Disks[i].Service; s == j.svc.Name || s == "" {
			n++
		}
	}
	return max(n, 1)
}

// find looks with xfs_repair -n.
func (j *job) find(title string, damaged *bool) step {
	return j.tool(title, []int{1}, func(code int, text string) (string, error) {
		j.took = time.Since(j.began)
		*damaged, j.log = code == 1, strings.Contains(text, dirtyLog)
		switch {
		case *damaged:
			return "damaged: " + toolWords(text), nil
		case j.log:
			return "no damage besides changes in the log that are not replayed", nil
		}
		return "no damage", nil
	}, "xfs_repair", "-n", "{}")
}

// dirtyLog is what xfs_repair says of a log that is to be replayed.
//
// Source: xfsprogs, repair/phase2.c, zero_log
const dirtyLog = "valuable metadata changes in a log"

// mend is the plan that keeps a dump, has a mount replay the log, and repairs.
func (j *job) mend() *procedure.Plan {
	p := &procedure.Plan{What: fmt.Sprintf("mend %s on %s", j.svc.MountPoint, j.on), Via: j.on}
	switch {
	case j.dumped:
		p.Notes = append(p.Notes, fmt.Sprintf("%s of %s is of an earlier run that did not end: it is kept, and no other is made", j.dump(), j.on))
	case j.o.NoDump:
		p.Notes = append(p.Notes, "no dump of the metadata is kept: what xfs_repair changes cannot be looked at afterwards")
	default:
		part := j.dump() + ".part"
		p.Steps = append(p.Steps,
			step{Title: "make " + DumpDir, On: j.on, Action: &resource.Action{Title: "make " + DumpDir, File: &resource.File{Path: DumpDir, Mkdir: true, Mode: 0o700}}},
			// With plain names: replaying a log spoils an image with names made up.
			j.tool("keep a dump of the metadata", nil, func(int, string) (string, error) { return "", nil }, "xfs_metadump", "-o", "{}", part),
			j.act("it is complete", 0, "mv", part, j.dump()))
		p.Notes = append(p.Notes, fmt.Sprintf("the dump is %s on %s: it has no data of files, but their names", j.dump(), j.on))
	}
	p.Steps = append(p.Steps, j.replay()...)
	p.Steps = append(p.Steps, j.repair())
	if j.took > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("the look took %s, and the repair reads as much and writes besides", rough(j.took)))
	}
	return p
}

// replay tries to mount the file system, which replays its log. That it cannot be mounted is no
// error: xfs_repair says whether the log matters.
func (j *job) replay() []step {
	const title = "try to mount it, which replays its log, and unmount it"
	if j.pair.HA == nil {
		mount, umount := j.act(title, long, "mount", j.svc.MountPoint), j.act("unmount it", 600, "umount", j.svc.MountPoint)
		mount.Action.OKCodes, umount.Action.OKCodes = []int{32}, []int{32} // mount(8), umount(8): it failed; it is not mounted
		mount.Judge = mounted(32)
		return []step{mount, umount}
	}
	s := j.act(title, long, append([]string{resource.MortarCommand}, ocf.Offline(j.svc.Name, ocf.TryMount, j.svc.MountPoint, j.off)...)...)
	s.Action.OKCodes = []int{ocf.ErrGeneric}
	s.Judge = mounted(ocf.ErrGeneric)
	return []step{s}
}

func mounted(failed int) func(resource.Output) (string, error) {
	return func(out resource.Output) (string, error) {
		if out.Code != failed {
			return "XFS mounts it", nil
		}
		lines := strings.Split(strings.TrimSpace(out.Stderr), "\n")
		if at := strings.Index(out.Stderr, reasonLine); at >= 0 {
			lines = strings.Split(out.Stderr[at+len(reasonLine):], "\n")[:1]
		}
		return "XFS does not mount it: " + screen.Line(lines[0]), nil
	}
}

// repair runs xfs_repair.
func (j *job) repair(flags ...string) step {
	return j.tool("repair the file system", []int{2}, func(code int, text string) (string, error) {
		if j.log = strings.Contains(text, dirtyLog) && code == 2; code == 2 && !j.log {
			return "", errors.New("xfs_repair: " + toolWords(text))
		}
		if j.log {
			return "xfs_repair did nothing: the log has changes that are not replayed", nil
		}
		return "repaired: " + toolWords(text), nil
	}, append(append([]string{"xfs_repair"}, flags...), "{}")...)
}

// start is the plan that looks once more, if something was mended, and starts the service.
func (j *job) start(mended bool) *procedure.Plan {
	p := &procedure.Plan{What: "start service " + j.svc.Name, Via: j.on}
	if mended {
		again := j.find("look at the file system once more", new(bool))
		judge := again.Judge
		again.Judge = func(out resource.Output) (string, error) {
			if text, err := judge(out); err != nil || out.Code == 0 {
				return text, err
			}
			return "", errStill
		}
		p.Steps = append(p.Steps, again)
	}
	if mended && !j.o.NoDump || j.dumped {
		// The name without a time is that of a repair that has not ended.
		done := fmt.Sprintf("%s-%s.metadump", strings.TrimSuffix(j.dump(), ".metadump"), time.Now().UTC().Format("20060102T150405Z"))
		p.Steps = append(p.Steps, j.act("keep the dump under a name of its own", 0, "mv", "--no-clobber", j.dump(), done))
	}
	if j.pair.HA == nil {
		p.Steps = append(p.Steps,
			j.act("let "+j.svc.MountPoint+" be mounted again", 0, "systemctl", "unmask", mountUnit(j.svc.MountPoint)),
			j.act("mount it", long, "mount", j.svc.MountPoint),
			j.act("start the NFS server", 300, "systemctl", "start", "nfs-server.service"))
	} else {
		p.Steps = append(p.Steps,
			j.crm("have the cluster forget the failures", "--cleanup"),
			j.crm("have the cluster care for it again", "--meta", "--delete-parameter", "is-managed"),
			j.crm("start service "+j.svc.Name, "--meta", "--delete-parameter", "target-role"),
			step{Title: "wait until it runs", Until: j.runs(), Hint: j.svc.Floating()})
	}
	p.Notes = []string{"XFS counts all quotas anew at the mount if the repair has reset them: that reads every inode, and `mortar status` tells how far the start is"}
	return p
}

// runs waits until the service runs. Failures count once the cluster has forgotten those before.
func (j *job) runs() func(*observe.Snapshot) (bool, string, error) {
	forgotten := false
	return func(s *observe.Snapshot) (bool, string, error) {
		st, err := procedure.Current(s, j.svc.Name, func(observe.Failure) bool { return forgotten && !s.Service(j.svc.Name).Runs() })
		switch {
		case err != nil:
			return false, "", err
		case st.Runs():
			return true, fmt.Sprintf("%s runs on %s", j.svc.Name, st.Server), nil
		}
		forgotten = forgotten || len(st.Failures) == 0
		return false, fmt.Sprintf("%s is %s", j.svc.Name, strings.ToLower(cmp.Or(st.Role, "stopped"))), nil
	}
}

// room is how many bytes are free below DumpDir.
func (j *job) room(ctx context.Context) (int64, error) {
	out, err := j.hosts.Session(j.on).Query(ctx, linux.Avail(path.Dir(DumpDir))...)
	if err != nil {
		return 0, err
	}
	return linux.ParseAvail(out.Stdout + out.Stderr)
}

func binary(n int64) string { return spec.Bytes(n).Binary() }

// rough is a time in words of no more accuracy than it has.
func rough(t time.Duration) string {
	switch {
	case t < time.Minute:
		return "a minute at most"
	case t < 2*time.Hour:
		return fmt.Sprintf("%.0f minutes", t.Minutes()+0.5)
	}
	return fmt.Sprintf("%.0f hours", t.Hours()+0.5)
}

// mountUnit is the unit of systemd that mounts at a path.
//
// Source: systemd.unit(5), STRING ESCAPING FOR INCLUSION IN UNIT NAMES
func mountUnit(at string) string {
	var b strings.Builder
	for i, c := range []byte(strings.Trim(path.Clean(at), "/")) {
		switch {
		case c == '/':
			b.WriteByte('-')
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == ':', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String() + ".mount"
}
