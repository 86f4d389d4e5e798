package lazyregexp

import "testing"

func TestCompiledOnce(t *testing.T) {
	r := New(`^(a+)(?P<b>b*)$`)
	if r.re == nil {
		t.Error("in a test it is compiled at once")
	}
	inTest = false
	defer func() { inTest = true }()
	r = New(`^(a+)(?P<b>b*)$`)
	if r.re != nil {
		t.Error("compiled before it is used")
	}
	if !r.MatchString("aab") || r.MatchString("b") {
		t.Error("match")
	}
	if m := r.FindStringSubmatch("aab"); len(m) != 3 || m[2] != "b" || r.SubexpNames()[2] != "b" {
		t.Error(m)
	}
	if string(r.FindSubmatch([]byte("aab"))[1]) != "aa" || len(r.FindAllSubmatch([]byte("ab"), -1)) != 1 || r.ReplaceAllString("aab", "x") != "x" {
		t.Error("other methods")
	}
}

func TestWrong(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a wrong expression is not told of")
		}
	}()
	New(`(`)
}
