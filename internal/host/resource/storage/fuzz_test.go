package storage

import (
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/base/linux"
	"github.com/mortarhpc/mortar/internal/base/md"
)

// FuzzToolOutput: whatever a tool prints, no parser panics or hangs.
func FuzzToolOutput(f *testing.F) {
	for _, s := range []string{
		"", "{}", `{"signatures":[{"device":"sda","type":"gpt","uuid":null}]}`,
		`{"report":[{"pv":[{"pv_name":"/dev/md0","vg_name":""}]}]}`,
		"/dev/sda:\n Array UUID : a:b\n Events : 7\nDevice Role : spare\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		_, _ = parseWipefs(s)
		_, _ = parseLVM(s)
		md.ParseExamine(s)
	})
}

// FuzzFstab: setting a line twice changes nothing the second time, and no
// line of another mount point is lost.
func FuzzFstab(f *testing.F) {
	f.Add("UUID=1 / ext4 defaults 0 1\n", "/mnt")
	f.Add("# c\na /mnt nfs x 0 0\nb /mnt/ nfs y 0 0", "/mnt")
	f.Fuzz(func(t *testing.T, text, target string) {
		if strings.ContainsAny(target, "\n\r") || target == "" {
			return
		}
		m := &MountPoint{Source: "s:/x", Path: target, Type: "nfs"}
		once := setFstab(text, m.line(), m.Path)
		if twice := setFstab(once, m.line(), m.Path); twice != once {
			t.Errorf("%q, then %q", once, twice)
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if len(linux.Fields(line)) < 2 && !strings.Contains("\n"+once, "\n"+line+"\n") {
				t.Errorf("the line %q is lost in %q", line, once)
			}
		}
	})
}
