package cache

import (
	"slices"
	"testing"
)

// A volume that grows below its cache: the device that is mounted ends where the volume ends,
// and the new end goes past bcache until the stack starts again.
func TestExtend(t *testing.T) {
	h, _ := newFlushBrick(t)
	s := h.command(WriteBack)
	for range 2 { // the second time there is nothing to do
		if err := s.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := s.Read(t.Context(), false); st.Uncached != 0 || h.loaded != "0 1000 linear 251:1 0\n" {
			t.Errorf("nothing has grown: %q, %d bytes past the cache", h.loaded, st.Uncached)
		}
	}
	h.files["/sys/class/block/dm-2/size"] = "1600\n"
	if err := s.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "0 1000 linear 251:1 0\n1000 600 linear 253:2 1000\n"; h.loaded != want {
		t.Errorf("table %q, want %q", h.loaded, want)
	}
	if st := s.Read(t.Context(), false); st.Uncached != 600*512 || !st.Up {
		t.Errorf("%+v", st)
	}
	h.act(h.agent().Stop)
	h.loaded = ""
	if err := s.Extend(t.Context()); err != nil || h.loaded != "" {
		t.Errorf("a stack that is down: %v, %q", err, h.loaded)
	}
}

// A volume in use gets its superblocks and its label without being touched, once. It is past
// the cache until the service starts again, and a start makes no layer of its own.
func TestPrepare(t *testing.T) {
	h, _ := newFlushBrick(t)
	h.act(h.agent().Stop)
	clear(h.flushBrick.blocks)
	h.superblocks = nil
	s := h.command(WriteBack)
	if st := s.Read(t.Context(), false); st.Uncached != 0 {
		t.Errorf("a volume that never had a cache: %+v", st)
	}
	if err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"0 16384 linear 253:1 0\n", "0 8192 linear 253:1 8192\n"}
	if !slices.Equal(h.superblocks, want) || h.agent().dm("b_home.origin") != "" || h.locked {
		t.Errorf("%q, origin %q, locked %v", h.superblocks, h.agent().dm("b_home.origin"), h.locked)
	}
	if l := h.label(); l.Dirty != nil || l.Clean != nil || l.SSDs != nil || l.Open {
		t.Errorf("%+v", l)
	}
	if st := s.Read(t.Context(), false); st.Uncached != 1000*512 || st.Up {
		t.Errorf("%+v", st)
	}
	if err := s.Prepare(t.Context()); err != nil || len(h.superblocks) != 2 {
		t.Errorf("the second time: %v, %q", err, h.superblocks)
	}
	h.setState(stateNone)
	h.act(h.agent().Start)
	if st := s.Read(t.Context(), false); st.Uncached != 0 || !st.Up || st.Error != "" {
		t.Errorf("after a start: %+v", st)
	}
}

// Nothing is prepared over data that is on SSDs alone, nor where the label cannot be read.
func TestPrepareLeavesALabel(t *testing.T) {
	h, _ := newFlushBrick(t)
	if err := h.command(WriteBack).Prepare(t.Context()); err != nil || h.superblocks != nil {
		t.Errorf("%v, %q", err, h.superblocks)
	}
	h.agree()
	h.act(h.agent().Stop)
	for _, off := range labelOffsets {
		if b := h.flushBrick.blocks[off]; b != nil {
			b[40] ^= 1
		}
	}
	if err := h.command(WriteBack).Prepare(t.Context()); err == nil || h.superblocks != nil {
		t.Errorf("the label is damaged: %v, %q", err, h.superblocks)
	}
}
