package lustre

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host"
	"github.com/mortarhpc/mortar/internal/host/resource"
	"github.com/mortarhpc/mortar/internal/serve/ocf"
)

// long bounds a tool on a whole target, in seconds: e2fsck of a big one takes
// hours.
const long = 7 * 24 * 3600

// settleTime bounds a start or stop of services, in seconds; after a crash a mount
// waits for MMP.
const settleTime = 600

// FSCK plans to check one target offline. It stops the target's service, whose
// clients wait. With repair e2fsck repairs the damage. After a failed repair the
// service stays stopped.
//
// Source: Lustre Operations Manual, 24.2; e2fsck(8)
func (f *FS) FSCK(word string, repair bool) (*Plan, error) {
	t, err := f.target(word)
	if err != nil {
		return nil, err
	}
	svc, pair := f.serviceOf(t)
	if err := f.everyServer(pair.Servers); err != nil {
		return nil, err
	}
	how, what := "-n", "look at "
	if repair {
		how, what = "-y", "mend "
	}
	p := &Plan{What: "e2fsck of " + t.Name}
	p.Steps = append(p.Steps, stop(f, pair, svc)...)
	check := offline(svc, t, what+t.Name, "e2fsck", "-f", how, "{}")
	check.Action.OKCodes = []int{1, 2, 3, 4, 5, 6, 7} // e2fsck(8): 8 and above are failures
	check.Judge = func(out resource.Output) (string, error) {
		text, err := ocf.Said(out.Stdout)
		if text = strings.TrimSpace(text); err != nil {
			return "", err
		}
		if out.Code&4 != 0 {
			return "", fmt.Errorf("%s is damaged:\n%s", t.Name, text)
		}
		return text, nil
	}
	p.Steps = append(p.Steps, check)
	p.Steps = append(p.Steps, start(f, pair, svc)...)
	if !repair {
		for i := range p.Steps[len(p.Steps)-2:] {
			p.Steps[len(p.Steps)-2+i].Always = true // a check without repair changes nothing
		}
	}
	p.Notes = []string{"clients of service " + svc.Name + " wait meanwhile", "if mending fails the service stays stopped: crm_resource --resource " + resource.ServiceID(svc.Name) + " --meta --delete-parameter target-role starts it"}
	return p, nil
}

// target finds a target of the design by its name, with or without that of the file
// system.
func (f *FS) target(word string) (design.Target, error) {
	return f.choose(word, "target", func(t design.Target, short string) (kind, named bool) {
		return true, word == t.Name || strings.EqualFold(word, short)
	})
}

// label is a target's name on its servers.
func label(t design.Target) string {
	if t.Kind == "mgs" {
		return "MGS"
	}
	return t.Name
}

func (f *FS) serviceOf(t design.Target) (*design.Service, *design.Pair) {
	for i := range f.d.Pairs {
		p := &f.d.Pairs[i]
		for j := range p.Services {
			if slices.ContainsFunc(p.Services[j].Targets, func(x design.Target) bool { return x.Name == t.Name }) {
				return &p.Services[j], p
			}
		}
	}
	return nil, nil // unreachable: every target belongs to a service
}

// everyServer refuses if a server does not answer, since that server may run the
// service to stop.
func (f *FS) everyServer(servers []string) error {
	for _, s := range servers {
		if err := f.silent[s]; err != nil {
			return resource.Refuse("host-no-answer", resource.With{"host": s, "error": err})
		}
	}
	return nil
}

// stop returns the steps in which the cluster stops a service and waits until none
// of its targets is mounted.
func stop(f *FS, pair *design.Pair, svc *design.Service) []Step {
	return f.role(pair, svc, "stop", "stopped", false, "--set-parameter", "target-role", "--parameter-value", "Stopped")
}

func start(f *FS, pair *design.Pair, svc *design.Service) []Step {
	return f.role(pair, svc, "start", "there", true, "--delete-parameter", "target-role")
}

func (f *FS) role(pair *design.Pair, svc *design.Service, what, want string, up bool, meta ...string) []Step {
	argv := append([]string{"crm_resource", "--resource", resource.ServiceID(svc.Name), "--meta"}, meta...)
	return []Step{
		command(pair.Servers[0], what+" service "+svc.Name, 0, argv...),
		{Title: "wait until it is " + want, On: pair.Servers[0], Work: func(ctx context.Context, say func(string)) error {
			return host.Wait{Limit: settleTime * time.Second, Poll: 2 * time.Second, Seen: say}.Until(ctx, func(ctx context.Context) (string, error) {
				return f.left(ctx, pair, svc, up), nil
			})
		}},
	}
}

// left names the targets of a service that are not mounted yet (up), or still.
func (f *FS) left(ctx context.Context, pair *design.Pair, svc *design.Service, up bool) string {
	have := map[string]string{}
	for _, s := range pair.Servers {
		text, err := f.query(ctx, s, "lctl", "dl")
		if err != nil {
			return err.Error()
		}
		for _, d := range devices(text) {
			have[d] = s
		}
	}
	for _, t := range svc.Targets {
		switch s := have[label(t)]; {
		case up && s == "":
			return t.Name + " is not mounted yet"
		case !up && s != "":
			return t.Name + " is still mounted on " + s
		}
	}
	return ""
}

// offline is a step that runs a tool on a target of a stopped service, on the
// target's preferred server.
func offline(svc *design.Service, t design.Target, title string, tool ...string) Step {
	return command(t.Server, title, long, append([]string{resource.MortarCommand}, ocf.Offline(svc.Name, ocf.OnVolume, label(t), "", tool...)...)...)
}

// Writeconf plans to regenerate the configuration of all targets, which is needed
// after a change of addresses or if the configuration is damaged. The MGS loses its
// pools, so the plan makes them again. Parameters of set_param -P stay.
//
// Source: Lustre Operations Manual, 14.5; lustre-release, lustre/mgs/mgs_llog.c
func (f *FS) Writeconf(ctx context.Context) (*Plan, error) {
	if err := f.everyServer(f.d.Servers()); err != nil {
		return nil, err
	}
	if err := f.noClients(ctx); err != nil {
		return nil, err
	}
	pools, err := f.Pools(ctx)
	if err != nil {
		return nil, err
	}
	p := &Plan{What: "write the configuration of " + f.d.Lustre.FSName + " anew"}
	var first, rest, tools, up []Step
	mgs := ""
	for i := range f.d.Pairs {
		pair := &f.d.Pairs[i]
		for j := range pair.Services {
			svc := &pair.Services[j]
			if svc.Targets[0].Kind == "mgs" {
				mgs = svc.Preferred
				first = append(first, stop(f, pair, svc)...)
				up = append(start(f, pair, svc), up...)
			} else {
				rest = append(rest, stop(f, pair, svc)...)
				up = append(up, start(f, pair, svc)...)
			}
			for _, t := range svc.Targets {
				if t.Kind != "mgs" {
					tools = append(tools, offline(svc, t, "write the configuration of "+t.Name+" anew", "tunefs.lustre", "--writeconf", "{}"))
				}
			}
		}
	}
	p.Steps = slices.Concat(first, rest, tools, up)
	for _, pool := range pools {
		full := f.pool(pool.Name)
		p.Steps = append(p.Steps, f.onMGS(mgs, "make pool "+full+" again", "lctl", "pool_new", full))
		if len(pool.OSTs) > 0 {
			p.Steps = append(p.Steps, f.onMGS(mgs, "add its OSTs", append([]string{"lctl", "pool_add", full}, pool.OSTs...)...))
		}
	}
	p.Notes = []string{"the file system is down meanwhile", "interrupted, do the steps that are left by hand, in this order: an OST that was left out does not start", "`mortar apply` mounts the clients again"}
	return p, nil
}

// onMGS is a step on the server of the MGS, which the cluster may start on either
// server.
func (f *FS) onMGS(home, title string, argv ...string) Step {
	return Step{Title: title + ": " + strings.Join(argv, " "), On: home, Work: func(ctx context.Context, _ func(string)) error {
		now, err := Open(ctx, f.d, f.hosts)
		if err != nil {
			return err
		}
		server, err := now.server("MGS")
		if err != nil {
			return err
		}
		_, err = f.hosts(server).Run(ctx, resource.Action{Title: title, Cmd: argv, Seconds: 300})
		return err
	}}
}

// unmounted reports whether lctl get_param failed only for exports of clients that
// have just unmounted, whose files cannot be read. lctl still prints the others.
//
// Source: lustre-release, lustre/utils/lustre_param.c, do_param_op; seen with 2.17.57
func unmounted(stderr string) bool {
	for line := range strings.Lines(stderr) {
		if t := strings.TrimSpace(line); t != "" && !(strings.Contains(t, "/exports/") && strings.HasSuffix(t, "No such device")) {
			return false
		}
	}
	return strings.TrimSpace(stderr) != ""
}

// noClients refuses while a client has the file system mounted. The MDS keeps the
// NIDs of clients after their unmount; only connected clients have UUIDs.
//
// Source: lustre-release, lustre/obdclass/lprocfs_status_server.c, ldebugfs_exp_uuid_seq_show
func (f *FS) noClients(ctx context.Context) error {
	server, err := f.server(f.mdt())
	if err != nil {
		return err
	}
	out, err := f.hosts(server).Query(ctx, "lctl", "get_param", "mdt."+f.mdt()+".exports.*.uuid")
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	if out.Code != 0 && !unmounted(out.Stderr) {
		return fmt.Errorf("%s: clients of %s: exit code %d: %s", server, f.mdt(), out.Code, strings.TrimSpace(out.Stderr))
	}
	own := map[string]bool{"0@lo": true}
	for _, p := range f.d.Pairs {
		for _, nid := range p.Targets()[0].ServiceNIDs {
			own[nid] = true
		}
	}
	exports := linux.ParseParams(out.Stdout)
	for _, name := range slices.Sorted(maps.Keys(exports)) {
		nid := strings.TrimSuffix(strings.TrimPrefix(name, "mdt."+f.mdt()+".exports."), ".uuid")
		if exports[name] != "" && !own[nid] {
			return resource.Refuse("lustre-client-mounted", resource.With{"client": nid})
		}
	}
	return nil
}
