package observe

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/host/gather"
)

// What tools of a server say that is not understood is one finding for each tool, with the
// line, and nothing else changes.
func TestUnreadIsAFinding(t *testing.T) {
	d := theDesign(t)
	for name, c := range map[string]struct {
		change func(h *gather.Host)
		want   []string
	}{
		"dmsetup": {func(h *gather.Host) {
			r := h.Run[gather.CmdDM]
			r.Stdout = "welcome\n" + r.Stdout + "odd: 0 1 multipath 2 0 0 0 1 1 A 0 9 2 8:0 A\n"
			h.Run[gather.CmdDM] = r
		}, []string{`unknown: dmsetup on nfs1: 1 record is not understood: "odd: 0 1 multipath 2 0 0 0 1 1 A 0 9 2 8:0 A"`}},
		"crm_mon": {func(h *gather.Host) {
			r := h.Run[gather.CmdCRM]
			r.Stdout = "welcome\n" + strings.Replace(r.Stdout, "<resources>", `<resources><pod id="p"/>`, 1)
			h.Run[gather.CmdCRM] = r
		}, []string{`unknown: crm_mon on nfs1: 1 record is not understood: "<pod id=\"p\"> among the resources"`}},
		"corosync": {func(h *gather.Host) {
			r := h.Run[gather.CmdLinks]
			r.Stdout = strings.ReplaceAll(r.Stdout, "disconnected", "wobbly")
			r.Stdout = strings.ReplaceAll(r.Stdout, "\tconnected", "\twobbly")
			h.Run[gather.CmdLinks] = r
		}, []string{`unknown: corosync-cfgtool on nfs1: 2 records are not understood`, "unknown: ring 0", "unknown: ring 1"}},
	} {
		f := healthy(t, d)
		c.change(f.Hosts["nfs1"].Host)
		var got []string
		for _, s := range complaints(Judge(d, f)) {
			if s != neverProven1 && s != neverProven2 {
				got = append(got, s)
			}
		}
		ok := len(got) == len(c.want)
		for i := range got {
			ok = ok && strings.HasPrefix(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
