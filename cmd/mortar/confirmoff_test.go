package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mortarhpc/mortar/internal/run/cli"
	"github.com/mortarhpc/mortar/internal/run/procedure"
)

func TestConfirmNode(t *testing.T) {
	p := &procedure.Plan{To: "nfs2", Notes: []string{"the BMC of nfs1 does not answer"}}
	for name, c := range map[string]struct{ given, say string }{
		"right":   {"nfs1", ""},
		"wrong":   {"nfs2", `"nfs2" is not "nfs1"`},
		"nothing": {"", "--confirm nfs1"},
	} {
		var w bytes.Buffer
		_, err := confirmNode(&cli.Console{In: strings.NewReader(""), Out: &w}, "nfs1", p, c.given)
		if c.say == "" && err != nil || c.say != "" && (err == nil || !strings.Contains(err.Error(), c.say)) {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(w.String(), p.Notes[0]) {
			t.Errorf("%s: what is unknown is not shown", name)
		}
	}
}
