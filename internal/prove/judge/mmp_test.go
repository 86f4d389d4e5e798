package judge

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/journal"
	"github.com/mortarhpc/mortar/internal/prove/report"
)

func TestJudgeMMP(t *testing.T) {
	const fault = int64(1e9)
	line := func(after float64, text string) report.Event {
		m, _ := journal.Means(journal.Line{Ident: "kernel", Message: text, Priority: 6}, nil)
		return report.Event{NS: fault + int64(after*1e9), Host: "oss02", Source: "kernel", Kind: m.Kind, Text: text}
	}
	over := line(41, "Lustre: small-OST0000: Recovery over after 0:06, of 2 clients 2 recovered and 0 were evicted.")
	// Messages: fs/ext4/mmp.c of the kernel, as ldiskfs prints them.
	active := "LDISKFS-fs warning (device dm-3): ldiskfs_multi_mount_protect:343: Device is already active on another node."
	twice := "LDISKFS-fs warning (device dm-3): kmmpd:215: Error while updating MMP info. The filesystem seems to have been multiply mounted."
	slow := "LDISKFS-fs warning (device dm-3): ldiskfs_multi_mount_protect:328: MMP interval 42 higher than expected, please wait."
	for name, c := range map[string]struct {
		events   []report.Event
		wakes    bool
		ok, none bool
	}{
		"no target":           {nil, false, false, true},
		"mounted":             {[]report.Event{line(20, slow), over}, false, true, false},
		"in use":              {[]report.Event{line(20, active), over}, false, false, false},
		"before the fault":    {[]report.Event{line(-2, active), over}, false, true, false},
		"mounted twice":       {[]report.Event{over, line(50, twice)}, false, false, false},
		"a server that wakes": {[]report.Event{over, line(50, twice)}, true, false, true},
	} {
		var checks checks
		(&Evidence{Events: c.events, Fault: fault, Subjects: []*Subject{{Expect: Expect{Wakes: c.wakes}}}}).mmp(&checks)
		if c.none != (len(checks) == 0) || !c.none && checks[0].OK != c.ok {
			t.Errorf("%s: %+v", name, checks)
		}
		if !c.none && !c.ok && !strings.Contains(checks[0].Detail, "oss02") {
			t.Errorf("%s: no server named: %s", name, checks[0].Detail)
		}
	}
}
