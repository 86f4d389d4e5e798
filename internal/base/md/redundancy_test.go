package md

import "testing"

func TestCanLose(t *testing.T) {
	slots := func(s string) (p []bool) {
		for _, c := range s {
			p = append(p, c == 'U')
		}
		return p
	}
	for _, c := range []struct {
		level  int
		layout uint32
		slots  string
		want   int
	}{
		{6, 2, "UUUUUU", 2},
		{6, 2, "U_UU_U", 0},
		{6, 2, "U__U_U", -1},
		{5, 2, "UUU", 1},
		{5, 2, "U_U", 0},
		{1, 0, "UU", 1},
		{1, 0, "_U", 0},
		{1, 0, "__", -1},
		{0, 0, "UU", 0},
		{0, 0, "U_", -1},
		// RAID 10, near 2: mirrors are slots 0 and 1, 2 and 3, 4 and 5.
		{10, Near2, "UUUUUU", 1},
		{10, Near2, "_UUUUU", 0},
		{10, Near2, "_UU_U_", 0}, // one of each mirror
		{10, Near2, "UU__UU", -1},
		{10, Near2, "__UUUU", -1},
		{10, 0x103, "U__UU_", 0}, // three copies
		// Copies across neighbours: two missing may be two too many.
		{10, Near2, "UUUUU", 1},
		{10, Near2, "U_U_U", -1},
		{10, 0x201, "U_U_", -1},
		{10, 0x201, "U_UU", 0},
	} {
		if got := CanLose(c.level, c.layout, slots(c.slots)); got != c.want {
			t.Errorf("RAID %d, layout %#x, %s can lose %d, want %d", c.level, c.layout, c.slots, got, c.want)
		}
	}
}

func TestFewest(t *testing.T) {
	for _, c := range []struct{ level, members, want int }{
		{6, 12, 10}, {6, 4, 2}, {5, 5, 4}, {1, 2, 1}, {10, 8, 4}, {10, 2, 1}, {0, 3, 3},
	} {
		if got := Fewest(c.level, c.members); got != c.want {
			t.Errorf("RAID %d of %d: %d, want %d", c.level, c.members, got, c.want)
		}
	}
}

func TestLevel(t *testing.T) {
	for name, want := range map[string]int{"raid6": 6, "raid10": 10, "raid1": 1, "linear": -1, "": -1, "6": -1} {
		if got := Level(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}
