package backup

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/internal/host/agent"
	"github.com/mortarhpc/mortar/internal/host/hosttest"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// Secrets are planted in all that a host says, in each form; none is in the report. Names and
// other text stay.
func TestBugReportHidesSecrets(t *testing.T) {
	s := site(t)
	const bmc, pdu, old = `p<ss"w&rd\1`, "public", "secret of long ago"
	key := bytes.Repeat([]byte{0, 7, 200, 'x'}, 64)
	read := func(file string) ([]byte, error) {
		switch {
		case file == "corosync.key":
			return key, nil
		case strings.Contains(file, "pdu"):
			return []byte(pdu + "\n"), nil
		}
		return []byte(bmc + "\n"), nil
	}
	cib := `<nvpair id="a" name="ip" value="10.0.0.1"/><nvpair id="b" name="passwd" value="p&lt;ss&quot;w&amp;rd\1"/><nvpair id="c" name="community" value="` + old + `"/><nvpair id="d" name="password" value="rest\of it"/><nvpair id="e" name="kept" value="still here"/>`
	play := hosttest.Play(func(_ context.Context, name, op string, params, result any) error {
		switch op {
		case string(agent.OpHello):
			if name == "nfs2" {
				return errors.New("no answer: " + bmc)
			}
			return hosttest.Answer(result, agent.Hello{})
		case string(agent.OpRead):
			return hosttest.Answer(result, agent.ReadResult{Content: []byte("kept " + bmc + " " + pdu + " " + string(key))})
		case string(agent.OpQuery):
			return hosttest.Answer(result, resource.Output{Stdout: cib})
		}
		return nil
	})
	inJSON, _ := json.Marshal(cib)
	b, err := BugReport(t.Context(), s, Evidence{
		Status: []byte(`"kept"`), Facts: inJSON, Events: []byte(base64.StdEncoding.EncodeToString(key)),
		Hosts: []string{"nfs1", "nfs2"},
	}, play.Session, read, "corosync.key", "v9", time.Unix(1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, f := range b.Files {
		names[f.Path] = string(f.text)
		for _, secret := range []string{bmc, `p&lt;ss`, `w&amp;rd`, `p\u003css`, pdu, old, "of it", string(key), base64.StdEncoding.EncodeToString(key)} {
			if bytes.Contains(f.text, []byte(secret)) {
				t.Errorf("%s holds %q: %s", f.Path, secret, f.text)
			}
		}
	}
	for name, want := range map[string]string{
		"hosts/nfs1/cib.xml":                    `value="10.0.0.1"/>`,
		"facts.json":                            `still here`,
		"hosts/nfs1/etc/corosync/corosync.conf": "kept [secret of bmc",
		"status.json":                           `"kept"`,
		specName:                                "flavour: nfs-ha",
	} {
		if !strings.Contains(names[name], want) {
			t.Errorf("%s: %s", name, names[name])
		}
	}
	if len(b.Missing) != 1 || !strings.Contains(b.Missing[0], "host nfs2: no answer: [secret") {
		t.Errorf("%q", b.Missing)
	}
	_, err = BugReport(t.Context(), s, Evidence{}, play.Session, os.ReadFile, "corosync.key", "v9", time.Unix(1000, 0))
	if err == nil || !strings.Contains(err.Error(), "cannot be read, so the report could not be freed of it") {
		t.Error(err)
	}
}
