package resource

import (
	"strings"
	"testing"
)

func TestFenceAgent(t *testing.T) {
	of := func(names, actions string) string {
		var b strings.Builder
		b.WriteString(`<?xml version="1.0" ?><resource-agent name="fence_x"><parameters>`)
		for n := range strings.FieldsSeq(names) {
			b.WriteString(`<parameter name="` + n + `" unique="0"><content type="string"/></parameter>`)
		}
		b.WriteString(`</parameters><actions>`)
		for a := range strings.FieldsSeq(actions) {
			b.WriteString(`<action name="` + a + `" automatic="0"/>`)
		}
		return b.String() + `</actions></resource-agent>`
	}
	for _, tt := range []struct{ options, text, want string }{
		{"ip password_script", of("action ip password password_script", "on off reboot status monitor"), ""},
		{"ip system_uri", of("action ip systems_uri", "on off reboot status"), `has no option "system_uri"; use one of those: action, ip, systems_uri`},
		{"ip", of("ip", "on off reboot monitor"), "has no action status"},
		{"ip", of("ip", "on off status monitor"), "has no action reboot"},
		{"ip", strings.Replace(of("ip method", "on off reboot status"), `name="method" unique="0"><content type="string"/>`, `name="method"><content type="select" default="cycle"/>`, 1), "at once"},
		{"ip method", strings.Replace(of("ip method", "on off reboot status"), `name="method" unique="0"><content type="string"/>`, `name="method"><content type="select" default="cycle"/>`, 1), ""},
		{"ip", "Traceback", "does not say which options it has"},
		{"ip", "", "does not say which options it has"},
	} {
		f := &FenceAgent{Agent: "fence_x", Options: strings.Fields(tt.options)}
		err := f.compare(tt.text)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.options, err, tt.want)
		}
	}
}
