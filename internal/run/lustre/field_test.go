package lustre

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/test/field"
)

var update = flag.Bool("update", false, "rewrite testdata/field")

func TestField(t *testing.T) {
	field.Check(t, "df", *update, func(text string) string {
		out := ""
		for _, u := range parseUsage(text) {
			out += fmt.Sprintf("%s %d %d %d %d %d %s\n", u.Target, u.KiB, u.Used, u.Free, u.Inodes, u.IUsed, u.Unread)
		}
		return out
	})
}

// Each line of a target is a target, and costs no other; text before it changes nothing.
func FuzzUsage(f *testing.F) {
	for _, c := range field.Cases(f, "df") {
		f.Add(c.Input, "fs-OST0009_UUID x")
	}
	f.Fuzz(func(t *testing.T, text, odd string) {
		all := parseUsage(text)
		if again := parseUsage(field.Banner + text); !slices.Equal(all, again) {
			t.Errorf("under a banner %v, else %v", again, all)
		}
		if odd = strings.Join(strings.Fields(odd), " "); odd == "" {
			return
		}
		if with := parseUsage(text + "\nfs-OST0007_UUID " + odd); len(with) != len(all)+1 || !slices.Equal(with[:len(all)], all) {
			t.Errorf("with %q %v, else %v", odd, with, all)
		}
	})
}

// A target of the design that lfs does not list, or has no numbers of, stays in the list,
// and no command drains it.
func TestBalanceOfSilentTargets(t *testing.T) {
	f, _ := open(t, map[string]string{"node01 lfs df -N --output=source,size,used,avail,itotal,iused /small": "small-OST0000_UUID: Resource temporarily unavailable\nsmall-OST0001_UUID 100 5 95 9 9\n"})
	all, err := f.Balance(t.Context())
	if err != nil || len(all) != 3 || all[0].Unread == "" || all[1].Unread != "" || all[2].Target != "small-MDT0000" || all[2].Unread == "" {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := f.Drain(t.Context(), "0"); err == nil {
		t.Errorf("%v", err)
	}
}
