package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestSummaryCountsAndJudges(t *testing.T) {
	for _, tc := range []struct {
		name, give string
		want       string
		wantOK     bool
	}{
		{"everything passes", `{"Action":"run","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"pass","Package":"p","Elapsed":1}`, "1 passed, 0 failed, 0 skipped in 1 packages (0 not ok)", true},
		{"a skip is a failure", `{"Action":"pass","Package":"p","Test":"A"}
{"Action":"skip","Package":"p","Test":"B"}
{"Action":"pass","Package":"p"}`, "1 passed, 0 failed, 1 skipped", false},
		{"a package without tests is no skip", `{"Action":"pass","Package":"p","Test":"A"}
{"Action":"pass","Package":"p"}
{"Action":"skip","Package":"q"}`, "1 passed, 0 failed, 0 skipped in 1 packages", true},
		{"a failing test", `{"Action":"output","Package":"p","Test":"A","Output":"because\n"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}`, "0 passed, 1 failed, 0 skipped in 1 packages (1 not ok)", false},
		{"a package that does not build", `{"Action":"build-output","ImportPath":"p","Output":"undefined: x\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}`, "0 passed, 0 failed, 0 skipped in 1 packages (1 not ok)", false},
		{"a test that never ended", `{"Action":"output","Package":"p","Test":"A","Output":"panic: x\n"}
{"Action":"fail","Package":"p"}`, "0 passed, 1 failed, 0 skipped", false},
		{"nothing ran", ``, "0 passed, 0 failed, 0 skipped", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			r := newReport(&out)
			if err := r.read(strings.NewReader(tc.give)); err != nil {
				t.Fatal(err)
			}
			if got := r.summary(time.Second); got != tc.wantOK || !strings.Contains(out.String(), tc.want) {
				t.Errorf("summary = %v, want %v with %q; output:\n%s", got, tc.wantOK, tc.want, out.String())
			}
		})
	}
}
