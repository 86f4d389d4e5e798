package health

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

type answer struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	Fine  *bool  `json:"fine"`
	Parts []struct {
		Slot string `json:"slot"`
		Temp int    `json:"temp"`
	} `json:"parts"`
	By map[string]struct {
		N int `json:"n"`
	} `json:"by"`
}

func TestJSON(t *testing.T) {
	const good = `{"name":"x","count":3,"fine":true,"parts":[{"slot":"1","temp":30}],"by":{"a":{"n":1}},"other":[[]]}`
	var want answer
	if err := json.Unmarshal([]byte(good), &want); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"alone":          good,
		"byte order":     "\ufeff" + good,
		"a banner":       "** authorized {use} only **\nWARN [x] {\"y\": z}\n" + good,
		"text behind it": good + "\nbye }\n",
		"same line":      "sudo: no host " + good,
		"quoted numbers": strings.NewReplacer(`"count":3`, `"count":"3"`, `"temp":30`, `"temp":30.0`, `"slot":"1"`, `"slot":1`).Replace(good),
	} {
		var got answer
		unread, err := JSON(text, &got)
		if err != nil || len(unread) > 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, %v", name, got, unread, err)
		}
	}
	// An odd value costs that value.
	for old, c := range map[string]struct{ odd, unread string }{
		`"name":"x"`:  {`"name":["x"]`, `name: ["x"]`},
		`"fine":true`: {`"fine":"yes"`, `fine: "yes"`},
		`"temp":30`:   {`"temp":"hot"`, `parts[0].temp: "hot"`},
		`{"n":1}`:     {`7`, `by.a: 7`},
		`"count":3`:   {`"count":{}`, `count: {}`},
	} {
		var got answer
		unread, err := JSON(strings.Replace(good, old, c.odd, 1), &got)
		if err != nil || len(unread) != 1 || unread[0] != c.unread {
			t.Errorf("%s: %+v, %q, %v", c.odd, got, unread, err)
		}
	}
	// Half an answer is none, also if an object in it is whole.
	for _, text := range []string{"", "no", "[1]", good[:40], "{\n\"parts\":[\n{\n\"slot\":\"1\"\n}\n,", "{\n {}\n"} {
		var got answer
		if _, err := JSON(text, &got); err == nil {
			t.Errorf("%q gives %+v", text, got)
		}
	}
	var list []struct {
		Name string `json:"ifname"`
	}
	if unread, err := JSON("[WARN] x\n"+`[{"ifname":"lo"},7,{"ifname":"eth0"}]`, &list); err != nil || len(list) != 2 || len(unread) != 1 || unread[0] != "[1]: 7" {
		t.Errorf("%+v, %q, %v", list, unread, err)
	}
	var got answer
	if _, err := JSON(`{"count":340282366920938463463374607431768211455}`, &got); err != nil || got.Count <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestUnread(t *testing.T) {
	var u Unread
	if u.String() != "" {
		t.Errorf("%q", u)
	}
	u.Add(" a\tb\n")
	if got, want := u.String(), `1 record is not understood: "a b"`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for range 4 {
		u.Add("\xff" + strings.Repeat("é", 200))
	}
	if got := u.String(); !strings.HasPrefix(got, "5 records are not understood: ") || !strings.HasSuffix(got, ", …") || len(got) > 4*recordLimit {
		t.Errorf("%q", got)
	}
}

// What has another form is counted, and costs nothing else.
func FuzzJSON(f *testing.F) {
	f.Add("x {", `{"name":"x","count":1e99,"parts":[{"temp":"a"},3]}`)
	f.Fuzz(func(t *testing.T, banner, text string) {
		var a, b answer
		unread, err := JSON(text, &a)
		if err != nil || strings.Contains(banner, "{") {
			return
		}
		again, err := JSON(banner+"\n"+text, &b)
		if err != nil || len(again) != len(unread) || !reflect.DeepEqual(a, b) {
			t.Errorf("%q before %q: %+v, %v, %v", banner, text, b, again, err)
		}
	})
}
