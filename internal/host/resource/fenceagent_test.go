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
		{"ip system_uri", of("action ip systems_uri", "on off reboot status"), "fence-agent-option"},
		{"ip", of("ip", "on off reboot monitor"), "fence-agent-action"},
		{"ip", of("ip", "on off status monitor"), "fence-agent-action"},
		{"ip", strings.Replace(of("ip method", "on off reboot status"), `name="method" unique="0"><content type="string"/>`, `name="method"><content type="select" default="cycle"/>`, 1), "fence-agent-cycles"},
		{"ip method", strings.Replace(of("ip method", "on off reboot status"), `name="method" unique="0"><content type="string"/>`, `name="method"><content type="select" default="cycle"/>`, 1), ""},
		{"ip", "Traceback", "fence-agent-unread"},
		{"ip", "", "fence-agent-unread"},
	} {
		f := &FenceAgent{Agent: "fence_x", Options: strings.Fields(tt.options)}
		err := f.compare(tt.text)
		if tt.want != "" {
			wantRefusal(t, nil, err, tt.want, "agent", "fence_x")
		} else if err != nil {
			t.Errorf("%q: %v", tt.options, err)
		}
	}
}
