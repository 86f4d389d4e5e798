package linux

import "testing"

func TestParseParams(t *testing.T) {
	p := ParseParams("error: get_param: param_path 'mdt/*/x': No such file or directory\n" +
		"obdfilter.small-OST0000.recovery_status=\nstatus: COMPLETE\nrecovery_start: 1795399259\ncompleted_clients: 1/1\nIR: DISABLED\n\n" +
		"osd-ldiskfs.small-OST0000.kbytestotal=29693504\nosd-ldiskfs.small-OST0000.kbytesavail=28112384\n")
	if len(p) != 3 || p["osd-ldiskfs.small-OST0000.kbytestotal"] != "29693504" {
		t.Errorf("%q", p)
	}
	k := ParseKeys(p["obdfilter.small-OST0000.recovery_status"])
	if k["status"] != "COMPLETE" || k["completed_clients"] != "1/1" || k["recovery_start"] != "1795399259" {
		t.Errorf("%q", k)
	}
}
