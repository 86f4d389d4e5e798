package backup

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
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
	b, err := bugReport(t.Context(), s, evidence{
		Status: []byte(`"kept"`), Facts: inJSON, Events: []byte(base64.StdEncoding.EncodeToString(key)),
		Hosts: []string{"nfs1", "nfs2"},
	}, play.Session, read, "v9", time.Unix(1000, 0))
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
	_, err = bugReport(t.Context(), s, evidence{}, play.Session, os.ReadFile, "v9", time.Unix(1000, 0))
	if err == nil {
		t.Error(err)
	}
}

// planted are secrets that no file of the spec has, in the places where they have been seen.
// PLANTED is the secret; what else stands in a place stays.
const planted = `<nvpair id="c" name="passwd" value="PLANTED"/><nvpair id="e" name="ip" value="10.0.0.1"/>
<nvpair value='PLANTED' id="f" name='snmp_priv_passwd'/>
<nvpair id="g" name="apikey" value="PLANTED"/><nvpair id="h" name="hexadecimal_kg" value="PLANTED"/>
      - {agent: fence_pve, options: {ip: 10.0.0.9, apikey: PLANTED, api_token: 'a b PLANTED'}}
password_command: [vault, read, "--token=PLANTED", --password, PLANTED]
//nas/x /mnt cifs username=u,password=PLANTED,vers=3 0 0
linux quiet console=ttyS0 mortar.password=PLANTED root=/dev/sda1
SNMP_COMMUNITY=PLANTED AWS_SECRET_ACCESS_KEY=PLANTED VAULT_TOKEN=PLANTED PATH=/usr/bin
{"password":"a PLANTED, b","password_file":"secrets/bmc-nfs1","name":"kept"}
COMMAND=/usr/bin/ipmitool -I lanplus -H 10.0.3.11 -U admin -P PLANTED chassis status
snmpget -v1 -c PLANTED 10.0.3.31:161 1.3.6; fence_apc -a 10.0.3.31 -l apc -p PLANTED -n 1
curl -H "Authorization: Basic PLANTED" https://admin:PLANTED@10.0.3.21/redfish/v1
totem {
	version: 2
	token: 5000
	key: PLANTED
}
-----BEGIN OPENSSH PRIVATE KEY-----
PLANTED
-----END OPENSSH PRIVATE KEY-----
"-----BEGIN RSA PRIVATE KEY-----\nPLANTED\n"
`

// No secret is in a report, whatever it is of, wherever a host or the spec has it, and in
// whichever code.
func TestBugReportHidesEverySecret(t *testing.T) {
	s := site(t)
	const line = "PLANTED/b64+QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB012345"
	checksum := strings.Repeat("0123456789abcdef", 4)
	text := planted + `{"MESSAGE":"` + line + `"}` + "\n" + checksum
	values := map[string]string{}
	read := func(file string) ([]byte, error) {
		values[file] = "it's <" + file + "> & \"more\"\\\x1b[0mü"
		return []byte(values[file] + "\n"), nil
	}
	hide, err := newHider(append(secretsOf(s), "secrets/array-a", "secrets/redfish-nfs1", "corosync.key"), read)
	if err != nil {
		t.Fatal(err)
	}
	if len(values) < 6 {
		t.Fatalf("the brick has few secrets: %q", values)
	}
	asJSON := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, form := range map[string]string{"plain": text, "JSON": asJSON(map[string]string{"stdout": text}), "JSON in JSON": asJSON(asJSON(text))} {
		got := string(hide([]byte(form)))
		if strings.Contains(got, "PLANTED") {
			t.Errorf("%s: %s", name, got)
		}
		for _, kept := range []string{"10.0.0.1", "token: 5000", "secrets/bmc-nfs1", "vers=3", "10.0.3.11", "root=/dev/sda1", "PATH=/usr/bin", "chassis status", checksum} {
			if !strings.Contains(got, kept) {
				t.Errorf("%s: %q is lost: %s", name, kept, got)
			}
		}
	}
	for file, v := range values {
		var numbers []string
		for _, b := range []byte(v) {
			numbers = append(numbers, fmt.Sprint(b))
		}
		for name, form := range map[string]string{
			"plain": v, "in a shell's quotes": "'" + strings.ReplaceAll(v, "'", `'\''`) + "'", "in a URL": "https://x/?p=" + url.QueryEscape(v), "in a path": url.PathEscape(v),
			"as the user of HTTP": base64.StdEncoding.EncodeToString([]byte("admin:" + v)), "with more": base64.StdEncoding.EncodeToString([]byte("administrator:" + v + "x")),
			"hex": hex.EncodeToString([]byte(v)), "a journal's bytes": `{"MESSAGE":[65,` + strings.Join(numbers, ",") + `]}`, "JSON in JSON": asJSON(asJSON(v)), "quoted by Go": fmt.Sprintf("%q", v),
		} {
			if got := string(hide([]byte(form))); !strings.Contains(got, "[secret of") || strings.Contains(got, "more") || strings.Contains(got, url.QueryEscape("more\"")) {
				t.Errorf("%s of %s: %s", name, file, got)
			}
		}
	}
}
