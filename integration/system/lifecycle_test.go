package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
)

func get(t *testing.T, s *proc.Server, path string) (int, string) {
	t.Helper()
	r, err := http.Get("http://" + s.Addr["http"] + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestHealthReadinessStatusAndMetrics(t *testing.T) {
	s := server(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(t, s, path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	code, body := get(t, s, "/api/v1/status")
	var status struct{ Listeners map[string]string }
	if err := json.Unmarshal([]byte(body), &status); err != nil || code != http.StatusOK {
		t.Fatalf("status: %d %v %s", code, err, body)
	}
	for name, addr := range s.Addr {
		if status.Listeners[name] != addr {
			t.Errorf("status says %s listens at %q, the readiness line %q", name, status.Listeners[name], addr)
		}
	}
	code, body = get(t, s, "/metrics")
	if code != http.StatusOK || !strings.Contains(body, "\nfusionmq_store_appends_total") {
		t.Errorf("/metrics: %d without a metric of our own:\n%.2000s", code, body)
	}
}

func TestASecondStartFailsAtOnceAndNamesTheHolder(t *testing.T) {
	s := server(t)
	began := time.Now()
	second, err := proc.Start(programs.Server, s.Dir)
	if err == nil {
		second.Kill()
		t.Fatal("two servers serve one data directory")
	}
	var exit *proc.ExitError
	if !errors.As(err, &exit) || exit.Code == 0 {
		t.Fatalf("second start: %v", err)
	}
	if !strings.Contains(exit.Output, strconv.Itoa(s.Pid())) {
		t.Errorf("the message does not name the holder, process %d:\n%s", s.Pid(), exit.Output)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s to find out", took)
	}
	if code, _ := get(t, s, "/readyz"); code != http.StatusOK {
		t.Errorf("the first server is not ready after that: %d", code)
	}
}

// markers are the files that carry the number of the data format.
func markers(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err != nil || info.Size() > 4096 {
			return err
		}
		b, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(b), "format 1") {
			found = append(found, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestDataOfANewerFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	if code, _, err := s.Stop(10 * time.Second); code != 0 || err != nil {
		t.Fatalf("stop: %d %v", code, err)
	}
	files := markers(t, dir)
	if len(files) == 0 {
		t.Fatal("no file of the data directory says which format it is")
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, []byte(strings.Replace(string(b), "format 1", "format 2", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err := proc.Start(programs.Server, dir)
	var exit *proc.ExitError
	if !errors.As(err, &exit) || exit.Code == 0 {
		t.Fatalf("start on a newer format: %v", err)
	}
	if !strings.Contains(exit.Output, "format") || !strings.Contains(exit.Output, "2") {
		t.Errorf("the message does not say which format it found:\n%s", exit.Output)
	}
}

func TestSIGTERMUnderLoadExitsZeroAndKeepsWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	topic := rmq.Unique("Term")
	createTopic(t, s, topic, 1)
	sender, err := raw.NewSender(s.Addr["broker"], "P")
	if err != nil {
		t.Fatal(err)
	}
	defer sender.C.Close()
	acked := make(chan int64, 1<<16)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		slots := make(chan struct{}, 64)
		for {
			select {
			case slots <- struct{}{}:
			case <-stop:
				return
			case <-sender.C.Gone():
				return
			}
			sender.Go(topic, 0, []byte("0123456789"), func(at raw.Sent, err error) {
				if err == nil {
					select {
					case acked <- at.Offset:
					default:
					}
				}
				<-slots
			})
		}
	}()
	for range 1000 {
		<-acked
	}
	code, took, err := s.Stop(15 * time.Second)
	close(stop)
	<-stopped
	if code != 0 || err != nil || took > 10*time.Second {
		t.Fatalf("exit %d after %s, %v\n%s", code, took, err, s.Output())
	}
	highest := int64(-1)
	for len(acked) > 0 {
		highest = max(highest, <-acked)
	}
	s = start(t, dir)
	c := dial(t, s, "broker")
	a, err := c.Do(raw.CodeMaxOffset, nil, "topic", topic, "queueId", "0")
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	if end := raw.Int(a.Header, "offset"); end <= highest {
		t.Errorf("after the restart the queue ends at %d, but offset %d was acknowledged", end, highest)
	}
}

func TestWrongUseIsExplained(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		args       []string
	}{
		{"an unknown flag", "--brokr-addr", []string{"--brokr-addr", "x"}},
		{"an address without a port", "broker", []string{"--broker-addr", "localhost"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := proc.Start(programs.Server, t.TempDir(), tc.args...)
			var exit *proc.ExitError
			if !errors.As(err, &exit) || exit.Code == 0 || !strings.Contains(exit.Output, tc.want) {
				t.Errorf("%v: %v, want a failure that names %q", tc.args, err, tc.want)
			}
		})
	}
	t.Run("an unknown key of the file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(fmt.Sprintln("broker:\n  adr: \":1\"")), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := proc.Start(programs.Server, t.TempDir(), "--config", file)
		var exit *proc.ExitError
		if !errors.As(err, &exit) || exit.Code == 0 || !strings.Contains(exit.Output, "broker.addr") {
			t.Errorf("%v, want a failure that suggests broker.addr", err)
		}
	})
}
