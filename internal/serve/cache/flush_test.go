package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/serve/kernel"
	"github.com/mortarhpc/mortar/internal/serve/refusal"
)

// flushBrick is what two servers share: the blocks of the header, the SSDs, who owns the
// volume. Its mirror has dirty data.
type flushBrick struct {
	t       *testing.T
	blocks  map[int64][]byte
	members []string // serials in the mirror's superblocks
	dirty   int64    // bytes that are on the SSDs only
	mode    string   // of the dirty layer, which bcache keeps in its superblock
	owner   string
	hosts   map[string]*flushHost
}

// flushHost is a server as a model of what bcache does with its devices dm-3 (origin) and
// dm-4 (between the layers), with the set "dset" on md126.
//
// Source: drivers/md/bcache/super.c, bch_cached_dev_detach, cached_dev_flush,
// cached_dev_free, __cache_set_unregister; writeback.c, bch_writeback_thread
type flushHost struct {
	*fakeTree
	*flushBrick
	name      string
	dead      bool
	failed    bool            // the set
	detaching bool            // the dirty layer
	closing   map[string]bool // by backing device
	locked    bool            // the service's actions
	held      error           // what Hold fails with
	loaded    string          // the last table of the device mapper
	// superblocks are the tables of the devices that got bcache's superblock.
	superblocks []string
}

const (
	flushDir  = "/sys/block/bcache1/bcache/"
	flushMD   = "d0000001-0000-0000-0000-000000000000"
	flushStep = 100 << 20 // bytes that a flush writes between two looks
)

func newFlushBrick(t *testing.T) (active, passive *flushHost) {
	b := &flushBrick{t: t, blocks: map[int64][]byte{}, members: []string{"A", "B"}, dirty: 5 * flushStep, mode: "writeback", owner: "nfs1", hosts: map[string]*flushHost{}}
	for _, name := range []string{"nfs1", "nfs2"} {
		b.hosts[name] = &flushHost{flushBrick: b, name: name}
		b.hosts[name].boot()
	}
	b.setState(stateDirty)
	l := &Label{Sequence: 2, Generation: 1, SSDs: []string{"A", "B"}, Split: true, Dirty: &Layer{Array: config(WriteBack).DirtyUUIDs[1], Set: "dset", Members: []string{"A", "B"}}}
	text, err := l.encode()
	if err != nil {
		t.Fatal(err)
	}
	b.blocks[labelOffsets[0]] = text
	active, passive = b.hosts["nfs1"], b.hosts["nfs2"]
	if err := active.agent().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return active, passive
}

func (b *flushBrick) setState(state byte) {
	sb := make([]byte, 4096)
	copy(sb[24:], bcacheMagic)
	sb[111] = state << 5
	b.blocks[half+4096] = sb
	if b.blocks[4096] == nil {
		clean := make([]byte, 4096)
		copy(clean[24:], bcacheMagic)
		b.blocks[4096] = clean
	}
}

func (b *flushBrick) state() int {
	sb, err := parseSuperblock(b.blocks[half+4096])
	if err != nil {
		b.t.Fatal(err)
	}
	return sb.State
}

// label is that on the disks.
func (b *flushBrick) label() *Label {
	l, err := newest(b.blocks[labelOffsets[0]], b.blocks[labelOffsets[1]])
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// agree fails if the label has forgotten a layer whose data is not on the disks.
func (b *flushBrick) agree() {
	b.t.Helper()
	if (b.label().Dirty == nil) && (b.state() == stateDirty || b.dirty > 0) {
		b.t.Errorf("the label has no dirty layer; the superblock's state is %d, and %d bytes are not on the disks", b.state(), b.dirty)
	}
}

// boot gives a server its volume and its SSDs, and nothing above them.
func (h *flushHost) boot() {
	h.fakeTree = &fakeTree{links: map[string]string{}, claimed: map[string]bool{}, blocks: h.flushBrick.blocks, files: map[string]string{
		"/proc/uptime": "9999.0 1.0\n", "/sys/fs/bcache/register": "", "/sys/module/raid1/refcnt": "", "/sys/module/raid0/refcnt": "",
	}}
	h.closing, h.detaching, h.failed, h.dead, h.locked = map[string]bool{}, false, false, false, false
	h.device("dm-1", "b_home-"+HeaderLV)
	h.device("dm-2", "b_home-data")
	for i, serial := range []string{"A", "B"} {
		n := fmt.Sprintf("nvme%dn1", i)
		h.files["/sys/block/"+n+"/device/serial"] = serial + "\n"
		h.files["/sys/class/block/"+n+"/size"] = "2000000\n"
		h.files["/sys/block/"+n+"/"+n+"p2/partition"] = "2\n"
	}
	h.poked = h.poke
}

func (h *flushHost) device(dev, name string) {
	h.files["/sys/block/"+dev+"/dm/name"], h.files["/sys/block/"+dev+"/dm/suspended"] = name+"\n", "0\n"
	h.files["/sys/class/block/"+dev+"/size"], h.files["/sys/class/block/"+dev+"/dev"] = "1000\n", "253:"+dev[3:]+"\n"
}

func (h *flushHost) gone(what string) {
	for _, m := range []map[string]string{h.files, h.links} {
		maps.DeleteFunc(m, func(p, _ string) bool { return strings.Contains(p+"/", what+"/") })
	}
}

func (h *flushHost) Hostname() (string, error) { return h.name, nil }

// agent is the stack of the resource agent, which has the lock.
func (h *flushHost) agent() *Stack {
	return &Stack{parts: parts{host: host{sys: h, note: h.t.Logf}, cfg: config(WriteBack, "A", "B")}}
}

// command is the stack of a command of apply.
func (h *flushHost) command(mode string) *Stack {
	return &Stack{parts: parts{host: host{sys: h, note: h.t.Logf}, cfg: config(mode, "A", "B")}, Hold: func(context.Context, string) (func(), error) {
		switch {
		case h.held != nil:
			return nil, h.held
		case h.owner != h.name:
			return nil, errors.New("the volume is " + h.owner + "'s")
		case h.locked:
			h.t.Error("two hold the lock")
		}
		h.locked = true
		return func() { h.locked = false }, nil
	}}
}

// act runs an action of the agent, which a command that holds the lock makes wait.
func (h *flushHost) act(action func(context.Context) error) {
	h.t.Helper()
	if h.locked {
		h.t.Error("the agent has to wait for a flush")
	}
	if err := action(h.t.Context()); err != nil {
		h.t.Errorf("%s: %v", h.name, err)
	}
}

// move takes the service to the other server, as Pacemaker does.
func (h *flushHost) move(to *flushHost) {
	h.t.Helper()
	h.act(h.agent().Stop)
	for _, name := range []string{"b_home.origin", "b_home.clean", "b_home.cached"} {
		if h.agent().dm(name) != "" {
			h.t.Errorf("%s is still on %s after its stop", name, h.name)
		}
	}
	if h.agent().array(flushMD) != nil {
		h.t.Errorf("the mirror still runs on %s", h.name)
	}
	h.owner = to.name
	to.act(to.agent().Start)
}

// Sleep lets bcache work on every server that runs.
func (h *flushHost) Sleep(ctx context.Context, d time.Duration) error {
	for _, x := range h.hosts {
		if !x.dead {
			x.work()
		}
	}
	return h.fakeTree.Sleep(ctx, d)
}

func (h *flushHost) attached() bool { return h.links[flushDir+"cache"] != "" }

// work is what the thread of the dirty layer does.
func (h *flushHost) work() {
	fast := h.detaching || h.files[flushDir+"writeback_running"] == "1\n" && h.files[flushDir+"writeback_rate_minimum"] == "1000000000\n"
	if (h.attached() || h.detaching) && fast && !h.failed {
		h.dirty = max(h.dirty-flushStep, 0)
		if h.dirty == 0 {
			h.setState(stateClean)
		}
	}
	if h.links["/sys/class/block/dm-4/bcache/dev"] != "" {
		h.files[flushDir+"dirty_data"] = fmt.Sprintf("%dM\n", h.dirty>>20)
	}
	if h.detaching && (h.dirty == 0 || h.failed) {
		if !h.failed {
			h.setState(stateNone)
		}
		h.detaching = false
		delete(h.links, flushDir+"cache")
	}
	for dev := range h.closing {
		if dev != "dm-4" || !h.detaching {
			delete(h.closing, dev)
			delete(h.claimed, "/dev/"+dev)
		}
	}
}

// loseSSDs pulls both: the set fails, and bcache stops a device that has dirty data.
func (h *flushHost) loseSSDs() {
	for _, n := range []string{"nvme0n1", "nvme1n1"} {
		for _, x := range h.hosts {
			x.gone("/" + n)
		}
	}
	h.failed = true
	h.gone("/sys/fs/bcache/dset")
	if h.attached() {
		h.detaching = true
		if h.state() == stateDirty {
			h.stop("dm-4")
		}
	}
}

// stop is what the kernel does at once: the directory goes, the device stays.
func (h *flushHost) stop(dev string) {
	h.closing[dev] = true
	h.gone("/sys/class/block/" + dev + "/bcache")
	h.gone("/sys/block/" + map[string]string{"dm-3": "bcache0", "dm-4": "bcache1"}[dev])
}

func (h *flushHost) attach() {
	h.links[flushDir+"cache"] = "/sys/fs/bcache/dset"
	h.setMode(h.mode)
}

func (h *flushHost) setMode(mode string) {
	h.mode = mode
	text := ""
	for _, m := range []string{"writethrough", "writeback", "writearound", "none"} {
		if m == mode {
			m = "[" + m + "]"
		}
		text += m + " "
	}
	h.files[flushDir+"cache_mode"] = text + "\n"
}

// run makes bcache's device over a backing device.
func (h *flushHost) run(dev string) {
	b := map[string]string{"dm-3": "bcache0", "dm-4": "bcache1"}[dev]
	h.links["/sys/class/block/"+dev+"/bcache/dev"] = "/sys/block/" + b
	h.files["/sys/class/block/"+b+"/size"], h.files["/sys/class/block/"+b+"/dev"] = "1000\n", "251:"+b[6:]+"\n"
	if dev == "dm-4" {
		maps.Copy(h.files, map[string]string{flushDir + "writeback_running": "1\n", flushDir + "writeback_delay": "30\n", flushDir + "writeback_rate_minimum": "8\n",
			flushDir + "dirty_data": fmt.Sprintf("%dM\n", h.dirty>>20)})
	}
}

func (h *flushHost) poke(_ *fakeTree, p, data string) error {
	if h.dead {
		return errors.New("the server is dead")
	}
	file := path.Base(p)
	switch {
	case p == "/sys/fs/bcache/register":
		switch dev := strings.TrimSpace(strings.TrimPrefix(data, "/dev/")); dev {
		case "md126":
			h.links["/sys/block/md126/bcache/set"] = "/sys/fs/bcache/dset"
			h.files["/sys/fs/bcache/dset/x"] = ""
		case "dm-3", "dm-4":
			h.claimed["/dev/"+dev] = true
			h.files["/sys/class/block/"+dev+"/bcache/x"] = ""
			set := h.files["/sys/fs/bcache/dset/x"] == "" && h.agent().exists("/sys/fs/bcache/dset")
			switch {
			case dev == "dm-3", h.state() == stateNone:
				h.run(dev)
			case set:
				h.run(dev)
				h.attach()
			}
		default:
			h.t.Errorf("bcache gets %s", dev)
		}
	case p == "/sys/class/block/dm-4/bcache/running":
		if h.state() == stateDirty {
			h.t.Error("dirty data is passed by")
		}
		h.setState(stateStale)
		h.run("dm-4")
	case p == flushDir+"attach":
		h.attach()
	case p == flushDir+"detach":
		h.detaching = h.attached()
	case file == "stop" && strings.HasPrefix(p, "/sys/class/block/dm-"):
		h.stop(strings.Split(p, "/")[4])
	case p == "/sys/fs/bcache/dset/stop":
		if h.attached() {
			h.t.Error("a set is stopped below its device")
		}
		h.gone("/sys/fs/bcache/dset")
		h.gone("/sys/block/md126/bcache")
	case p == flushDir+"cache_mode":
		h.setMode(strings.TrimSpace(data))
	case strings.HasPrefix(p, flushDir), strings.HasPrefix(p, "/sys/fs/bcache/dset/"), strings.HasPrefix(p, "/sys/block/bcache0/bcache/"):
		h.files[p] = data
	default:
		h.t.Errorf("written to %s: %q", p, data)
	}
	return nil
}

func (h *flushHost) Run(_ context.Context, c kernel.Command) (string, error) {
	argv := c.Argv
	if h.dead {
		return "", errors.New("the server is dead")
	}
	if !c.Together || !slices.Contains(c.Env, "MDADM_NO_UDEV=1") {
		h.t.Errorf("%q outlives its agent, or waits for udev", argv)
	}
	name := argv[len(argv)-1]
	switch line := strings.Join(argv, " "); {
	case argv[0] == "partx":
	case strings.HasPrefix(line, "mdadm --assemble"):
		h.files["/sys/block/md126/md/array_state"], h.files["/sys/block/md126/md/uuid"] = "clean\n", flushMD+"\n"
		h.files["/sys/class/block/md126/size"] = "2000000\n"
		for i := range h.members {
			h.files[fmt.Sprintf("/sys/block/md126/md/dev-nvme%dn1p2/state", i)] = "in_sync\n"
		}
	case strings.HasPrefix(line, "mdadm --stop"):
		if h.links["/sys/block/md126/bcache/set"] != "" {
			return "", errors.New("busy")
		}
		h.gone("md126")
	case strings.HasPrefix(line, "mdadm --zero-superblock"):
		if h.owner != h.name || !h.locked {
			h.t.Errorf("%s erases SSDs that are not its own", h.name)
		}
		h.members = nil
	case strings.HasPrefix(line, "dmsetup --noudevsync create"):
		h.loaded = c.Stdin
		h.device(map[string]string{"b_home.origin": "dm-3", "b_home.clean": "dm-4", "b_home.cached": "dm-5"}[name], name)
	case strings.HasPrefix(line, "dmsetup --noudevsync load"):
		h.loaded = c.Stdin
	case strings.HasPrefix(line, "dmsetup --noudevsync --nolockfs resume"):
		h.files["/sys/class/block/dm-5/size"] = h.files["/sys/class/block/dm-2/size"]
	case strings.HasPrefix(line, "make-bcache -B"):
		h.superblocks = append(h.superblocks, h.loaded)
	case strings.HasPrefix(line, "dmsetup --noudevsync remove"):
		dev := h.agent().dm(name)
		if h.claimed["/dev/"+dev] {
			return "", errors.New("Device or resource busy")
		}
		h.gone("/sys/block/" + dev)
		h.gone("/sys/class/block/" + dev)
	default:
		return "", fmt.Errorf("nobody expects %s", line)
	}
	return "", nil
}

func (h *flushHost) WriteBlocks(dev string, offset int64, data []byte) error {
	if slices.Contains(labelOffsets[:], offset) && h.owner != h.name {
		h.t.Errorf("%s writes the label of a volume that is %s's", h.name, h.owner)
	}
	if h.dead {
		return errors.New("the server is dead")
	}
	return h.fakeTree.WriteBlocks(dev, offset, data)
}

// at calls f once, at the first look at which no more than left bytes are dirty.
func at(left int64, f func()) Progress {
	done := false
	return func(_ string, now, _ int64) {
		if !done && now > 0 && now <= left {
			done = true
			f()
		}
	}
}

// flushCommands are the commands that flush.
var flushCommands = map[string]func(context.Context, *flushHost, Progress) error{
	"cache mode write-through": func(ctx context.Context, h *flushHost, say Progress) error {
		s := h.command(WriteThrough)
		if err := s.readLabel(); err != nil {
			return err
		}
		return (&change{s, say}).steps(ctx, need{DropDirty: true})
	},
	"cache off": func(ctx context.Context, h *flushHost, say Progress) error {
		return h.command(WriteBack).Off(ctx, say)
	},
}

func eachFlush(t *testing.T, f func(t *testing.T, flush func(context.Context, *flushHost, Progress) error)) {
	for name, flush := range flushCommands {
		t.Run(name, func(t *testing.T) { f(t, flush) })
	}
}

// A flush that is not disturbed frees the SSDs.
func TestFlush(t *testing.T) {
	eachFlush(t, func(t *testing.T, flush func(context.Context, *flushHost, Progress) error) {
		h, _ := newFlushBrick(t)
		var left []int64
		if err := flush(t.Context(), h, func(_ string, l, _ int64) { left = append(left, l) }); err != nil {
			t.Fatal(err)
		}
		if h.state() == stateDirty || h.label().Dirty != nil || h.members != nil || len(left) < 5 || left[0] != 5*flushStep {
			t.Errorf("state %d, label %+v, SSDs %q, told %v", h.state(), h.label(), h.members, left)
		}
		h.agree()
	})
}

// A stop of the service ends a flush and does not wait for it. The service goes on on the
// other server, with what is dirty on the SSDs, and the command says so.
func TestStopDuringFlush(t *testing.T) {
	eachFlush(t, func(t *testing.T, flush func(context.Context, *flushHost, Progress) error) {
		h, partner := newFlushBrick(t)
		err := flush(t.Context(), h, at(3*flushStep, func() { h.move(partner) }))
		if !errors.Is(err, errDown) {
			t.Errorf("%v", err)
		}
		if l := h.label(); l.Dirty == nil || h.dirty == 0 || !partner.attached() {
			t.Errorf("label %+v, %d bytes dirty", l, h.dirty)
		}
		h.agree()
		// And the command on the server that has the volume now ends it.
		if err := flush(t.Context(), partner, func(string, int64, int64) {}); err != nil {
			t.Errorf("%v", err)
		}
		h.agree()
		if h.label().Dirty != nil || h.dirty > 0 {
			t.Errorf("%d bytes dirty", h.dirty)
		}
	})
}

// The server dies: its partner starts with what is dirty on the SSDs.
func TestFailoverDuringFlush(t *testing.T) {
	eachFlush(t, func(t *testing.T, flush func(context.Context, *flushHost, Progress) error) {
		h, partner := newFlushBrick(t)
		err := flush(t.Context(), h, at(3*flushStep, func() {
			h.dead, h.owner = true, partner.name
			partner.act(partner.agent().Start)
			h.files[flushDir+"dirty_data"] = "0\n"
		}))
		// The server was only frozen: its own bcache ends the flush. The command does not.
		if err == nil || !strings.Contains(err.Error(), "the volume is nfs2's") {
			t.Errorf("%v", err)
		}
		if h.label().Dirty == nil || h.dirty == 0 || !partner.attached() || partner.mode != "writeback" {
			t.Errorf("label %+v, %d bytes dirty, mode %s", h.label(), h.dirty, partner.mode)
		}
		h.agree()
	})
}

// bcache lets go of a set that fails. The label keeps its layer as long as bcache's
// superblock says that data is on it alone.
func TestSSDsLostDuringFlush(t *testing.T) {
	eachFlush(t, func(t *testing.T, flush func(context.Context, *flushHost, Progress) error) {
		for _, stopped := range []bool{true, false} {
			h, _ := newFlushBrick(t)
			err := flush(t.Context(), h, at(3*flushStep, func() {
				h.loseSSDs()
				if !stopped { // as if bcache's device went on without its set
					h.closing = map[string]bool{}
					h.links["/sys/class/block/dm-4/bcache/dev"] = "/sys/block/bcache1"
				}
			}))
			if err == nil || h.label().Dirty == nil {
				t.Errorf("%v, label %+v", err, h.label())
			}
			if r := (*refusal.Refusal)(nil); !stopped && (!errors.As(err, &r) || r.Code != "ssd-left" || !slices.Equal(r.Args["ssds"].([]string), []string{"A", "B"})) {
				t.Errorf("%v", err)
			}
			h.agree()
		}
	})
}

// A flush that was killed: bcache goes on with it, the service as well, a stop is as ever,
// and the next command ends the flush, or takes it back.
func TestKilledFlush(t *testing.T) {
	eachFlush(t, func(t *testing.T, flush func(context.Context, *flushHost, Progress) error) {
		for _, then := range []string{"again", "back", "stop"} {
			h, partner := newFlushBrick(t)
			ctx, kill := context.WithCancel(t.Context())
			if err := flush(ctx, h, at(3*flushStep, kill)); !errors.Is(err, context.Canceled) || h.locked {
				t.Errorf("%v, locked %v", err, h.locked)
			}
			h.agree()
			switch then {
			case "again":
				if err := flush(t.Context(), h, func(string, int64, int64) {}); err != nil || h.label().Dirty != nil {
					t.Errorf("%v, label %+v", err, h.label())
				}
			case "back":
				h.files["/sys/fs/bcache/dset/tree_depth"] = "1\n"
				s := h.command(WriteBack)
				v, err := s.look()
				if err != nil {
					t.Fatal(err)
				}
				n, err := needs(s.cfg, h.name, "", v)
				if err != nil || !n.TakeWrites || n.DropDirty || n.MakeDirty {
					t.Errorf("%+v, %v", n, err)
				}
				if err := (&change{s, func(string, int64, int64) {}}).steps(t.Context(), need{TakeWrites: true}); err != nil || h.mode != "writeback" || h.files[flushDir+"writeback_rate_minimum"] != "8\n" {
					t.Errorf("%v, mode %s", err, h.mode)
				}
			case "stop":
				h.move(partner)
			}
			h.agree()
		}
	})
}

// The kernel may have a device for longer than its directory in /sys: bcache's own flush
// of an earlier release runs. A stop succeeds only when the device is gone.
func TestStopWaitsForTheDevice(t *testing.T) {
	h, _ := newFlushBrick(t)
	h.dirty = 1 << 50
	if err := h.Poke(flushDir+"detach", "1\n"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the directory is gone at the second stop
		if err := h.agent().Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "bcache lets go of dm-4") {
			t.Errorf("%v", err)
		}
	}
	h.dirty = flushStep
	h.act(h.agent().Stop)
	h.agree()
}

// The drill's flush waits for ever. What ends it is a start, or the mode's way back.
func TestStalledFlush(t *testing.T) {
	eachFlush(t, func(t *testing.T, flush func(context.Context, *flushHost, Progress) error) {
		h, partner := newFlushBrick(t)
		if err := h.command(WriteBack).Stall(t.Context()); err != nil {
			t.Fatal(err)
		}
		looks := 0
		err := flush(t.Context(), h, func(_ string, left, _ int64) {
			if looks++; looks == 100 {
				if left != 5*flushStep {
					t.Errorf("%d bytes left", left)
				}
				h.move(partner)
			}
		})
		if !errors.Is(err, errDown) || looks != 100 || partner.files[flushDir+"writeback_running"] != "1\n" || partner.mode != "writeback" {
			t.Errorf("%v after %d looks, mode %s", err, looks, partner.mode)
		}
		h.agree()
		st := partner.agent().Read(t.Context(), false)
		if st.Error != "" || !st.Up || st.Dirty != 5*flushStep {
			t.Errorf("%+v", st)
		}
	})
}

// The state of a cache tells if the label has forgotten what bcache's superblock knows.
func TestStatsCompareLabel(t *testing.T) {
	h, _ := newFlushBrick(t)
	s := h.agent()
	if err := s.readLabel(); err != nil {
		t.Fatal(err)
	}
	s.label.Dirty = nil
	if err := s.writeLabel(); err != nil {
		t.Fatal(err)
	}
	if st := h.agent().Read(t.Context(), false); !strings.Contains(st.Error, "superblock") {
		t.Errorf("%+v", st)
	}
}

// A step of a change refuses if another change got between its steps.
func TestChangeBetweenSteps(t *testing.T) {
	h, _ := newFlushBrick(t)
	s := h.command(WriteThrough)
	if err := s.readLabel(); err != nil {
		t.Fatal(err)
	}
	other := h.agent()
	if err := other.readLabel(); err != nil {
		t.Fatal(err)
	}
	other.label.Dirty.Members, other.label.Open = []string{"A"}, false // NoteSync and a stop do that
	if err := other.writeLabel(); err != nil {
		t.Fatal(err)
	}
	if err := s.locked(t.Context(), func() error { return nil }); err != nil || !slices.Equal(s.label.Dirty.Members, []string{"A"}) {
		t.Errorf("%v, %+v", err, s.label.Dirty)
	}
	other.label.Generation++
	if err := other.writeLabel(); err != nil {
		t.Fatal(err)
	}
	if err := s.locked(t.Context(), func() error { t.Error("the step goes on"); return nil }); err == nil {
		t.Error("no error")
	}
}

// SyncChanged tells of an SSD that has left the mirror until NoteSync has written it down.
func TestSyncChanged(t *testing.T) {
	h, _ := newFlushBrick(t)
	s := h.agent()
	looks := func(want bool) {
		t.Helper()
		if got := s.SyncChanged(); got != want {
			t.Errorf("changed %v, want %v", got, want)
		}
	}
	looks(true) // nothing noted yet
	if err := s.NoteSync(); err != nil {
		t.Fatal(err)
	}
	looks(false)
	h.files["/sys/block/md126/md/dev-nvme0n1p2/state"] = "faulty\n"
	looks(true)
	if err := s.NoteSync(); err != nil || !slices.Equal(h.label().Dirty.Members, []string{"B"}) {
		t.Errorf("%v, %+v", err, h.label().Dirty)
	}
	looks(false)
	h.act(h.agent().Stop)
	looks(false)
}
