package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/meta"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fusionctl": main})
}

// TestScripts runs testdata/*.txt against real servers. Beside the usual commands there are:
//
//	server NAME [ARGS...]    starts the server of this source tree on free ports; $NAME is its http listener
//	foreign NAME             starts a listener that answers HTTP but is no FusionMQ; $NAME is its address
//	silent NAME              starts a listener that never answers; $NAME is its address
//	directory NAME [LEFT...] makes a data directory with messages, which no server has open; at the end of the script a check has to find
//	                         nothing in it, or as much as LEFT says, each a severity and an area
//	overwrite FILE OFF TEXT  writes text into a file
func TestScripts(t *testing.T) {
	bin := buildServer(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": func(ts *testscript.TestScript, _ bool, args []string) { startServer(ts, bin, args) },
			"foreign": func(ts *testscript.TestScript, _ bool, args []string) {
				listen(ts, args[0], "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\nhello")
			},
			"silent":    func(ts *testscript.TestScript, _ bool, args []string) { listen(ts, args[0], "") },
			"directory": func(ts *testscript.TestScript, _ bool, args []string) { makeDirectory(t, ts, args) },
			"overwrite": func(ts *testscript.TestScript, _ bool, args []string) {
				off, err := strconv.ParseInt(args[1], 10, 64)
				ts.Check(err)
				f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY, 0)
				ts.Check(err)
				_, err = f.WriteAt([]byte(args[2]), off)
				ts.Check(errors.Join(err, f.Close()))
			},
		},
	})
}

// buildServer builds fusionmq. This module must not import it, as users of fusionctl do not.
func buildServer(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "fusionmq")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/fusionmq")
	cmd.Dir = filepath.Join("..", "..", "..", "fusion")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/fusionmq: %v\n%s", err, out)
	}
	return bin
}

// makeDirectory makes a data directory with 500 messages of one topic, and has it checked at the end of the script.
func makeDirectory(t *testing.T, ts *testscript.TestScript, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Defer(func() {
		r, err := check.Run(context.Background(), check.Options{Dir: dir})
		if err != nil {
			t.Errorf("check of %s: %v", args[0], err)
			return
		}
		var left []string
		for _, f := range r.Findings {
			left = append(left, fmt.Sprint(f.Severity, " ", f.Area))
		}
		if !slices.Equal(left, args[1:]) {
			t.Errorf("%s is left with %+v, want %q", args[0], r.Findings, args[1:])
		}
	})
	s, err := store.Open(store.Options{Dir: dir, SegmentBytes: 128 << 10, CheckpointBytes: 64 << 10})
	ts.Check(err)
	ts.Check(s.Topics().Put(meta.DefaultTopic("orders")))
	rs := make([]store.Result, 1)
	for i := range 500 {
		s.Append([]store.Message{{Topic: "orders", Queue: int32(i % 4), Body: bytes.Repeat([]byte("x"), 300), Properties: []byte("TAGS\x01a\x02")}}, rs)
		ts.Check(rs[0].Err)
	}
	ts.Check(s.Close())
}

func startServer(ts *testscript.TestScript, bin string, args []string) {
	free := []string{"server", "--nameserver-addr", "127.0.0.1:0", "--broker-addr", "127.0.0.1:0", "--notify-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}
	cmd := exec.Command(bin, append(free, args[1:]...)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "FUSIONMQ_STORE_SEGMENT_SIZE=16MiB", "FUSIONMQ_BROKER_NAME=b1", "FUSIONMQ_BROKER_CLUSTER=c1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	lines := bufio.NewScanner(out)
	ts.Defer(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		for lines.Scan() { // until it has closed its end
		}
		if err := cmd.Wait(); err != nil {
			ts.Logf("server: %v", err)
		}
	})
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
			for _, word := range strings.Fields(rest) {
				if addr, ok := strings.CutPrefix(word, "http="); ok {
					ts.Setenv(args[0], addr)
				}
			}
			return
		}
	}
	ts.Fatalf("the server has ended without a ready line")
}

// listen answers every connection with text, or never when it is empty.
func listen(ts *testscript.TestScript, name, text string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ended := make(chan struct{})
	ts.Defer(func() { _ = l.Close(); <-ended })
	ts.Setenv(name, l.Addr().String())
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if text != "" {
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte(text))
				_ = c.Close()
			}
		}
	}()
}
