package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
)

// build makes the demo and the server.
func build(t *testing.T) (demo, server string) {
	t.Helper()
	dir := t.TempDir()
	p, err := proc.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	demo = filepath.Join(dir, "demo")
	if out, err := exec.Command("go", "build", "-o", demo, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return demo, p.Server
}

func TestDemoSeesEveryMessageByPushAndByPull(t *testing.T) {
	_, server := build(t)
	s, err := proc.Start(server, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, options{connect: s.Addr["http"], messages: 24, notify: 8}, &out); err != nil {
		t.Fatalf("%v\n%s\nserver:\n%s", err, out.String(), s.Output())
	}
	if !strings.Contains(out.String(), "32 messages, 64 deliveries, 0 missing, 0 changed") {
		t.Errorf("summary of\n%s", out.String())
	}
	for _, path := range []string{"rocketmq to push", "rocketmq to pull", "notify to push", "notify to pull"} {
		if !strings.Contains(out.String(), path) {
			t.Errorf("no line for %s in\n%s", path, out.String())
		}
	}
}

func TestDemoFailsWhenTheServerIsKilledMidway(t *testing.T) {
	demo, server := build(t)
	s, err := proc.Start(server, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, demo, "-connect", s.Addr["http"], "-pause", "100ms", "-messages", "2000", "-timeout", "45s") // far more than go before the kill
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	var lines []string
	for sc := bufio.NewScanner(pipe); sc.Scan(); {
		lines = append(lines, sc.Text())
		if !killed && strings.HasPrefix(sc.Text(), "sent 5 of") {
			s.Kill()
			killed = true
		}
	}
	err = cmd.Wait()
	if !killed {
		t.Fatalf("the demo never sent 5 messages: %v\n%s\n%s", err, strings.Join(lines, "\n"), errs.String())
	}
	if code := cmd.ProcessState.ExitCode(); code != 1 || ctx.Err() != nil {
		t.Errorf("exit code %d (%v), want 1\n%s\n%s", code, ctx.Err(), strings.Join(lines, "\n"), errs.String())
	}
}

func TestReportFindsWhatIsMissingOrChanged(t *testing.T) {
	one := sent{id: "A", from: "rocketmq", tag: "t", keys: map[string]string{byPush: "k", byPull: "k"}, colour: "c", body: sha256.Sum256([]byte("body")), size: 4}
	good := arrival{id: "A", tag: "t", keys: "k", colour: "c", body: []byte("body")}
	for _, tc := range []struct {
		name   string
		pushed []arrival
		pulled []arrival
		want   string // empty: no error
		says   string
	}{
		{"all is well", []arrival{good}, []arrival{good}, "", "0 missing, 0 changed, 0 repeats"},
		{"a repeat is counted and no failure", []arrival{good, good}, []arrival{good}, "", "0 missing, 0 changed, 1 repeats"},
		{"never pushed", nil, []arrival{good}, "1 deliveries missing", "MISSING"},
		{"never pulled", []arrival{good}, nil, "1 deliveries missing", "MISSING"},
		{"another body", []arrival{good}, []arrival{{id: "A", tag: "t", keys: "k", colour: "c", body: []byte("bodY")}}, "1 changed", "CHANGED: its body"},
		{"another tag", []arrival{{id: "A", tag: "x", keys: "k", colour: "c", body: []byte("body")}}, []arrival{good}, "1 changed", "CHANGED: its tag"},
		{"another id is no arrival", []arrival{{id: "B"}}, []arrival{good}, "1 deliveries missing", "MISSING"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLog()
			l.addSent(one)
			for _, a := range tc.pushed {
				l.add(byPush, a)
			}
			for _, a := range tc.pulled {
				l.add(byPull, a)
			}
			var out bytes.Buffer
			err := l.report(&out)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || !strings.Contains(out.String(), tc.says) {
				t.Errorf("error %v, want %q; output, want %q:\n%s", err, tc.want, tc.says, out.String())
			}
		})
	}
}

func TestNothingSentIsNoSuccess(t *testing.T) {
	if err := newLog().report(&bytes.Buffer{}); err == nil {
		t.Error("an empty run is reported as a success")
	}
}
