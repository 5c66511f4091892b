package repair_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/internal/fanout"
	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/repair"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// directory has messages of which a group is owed some. At the end of the test it has to be sound, whatever was done to it; damaged, if there is
// any, is where its log is damaged for good.
func directory(t *testing.T, damaged ...int64) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	t.Cleanup(func() {
		r, err := check.Run(context.Background(), check.Options{Dir: "/s", FS: m, Exchange: fanout.New})
		if err != nil {
			t.Fatal(err)
		}
		var at []int64
		for _, f := range r.Findings {
			if f.Severity == check.Note {
				continue
			}
			if at = append(at, f.Position); f.Severity != check.Damage || f.Area != "log" || !slices.Contains(damaged, f.Position) {
				t.Errorf("left: %+v", f)
			}
		}
		if len(at) < len(damaged) {
			t.Errorf("damage is found at %d, want %d", at, damaged)
		}
	})
	s, err := store.Open(store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Exchange: fanout.New()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Topics().Put(meta.DefaultTopic("A")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Operate([]state.Op{{Kind: state.OpBind, Topic: "A", Group: "g", Binding: state.Binding{Kind: state.BindFanout}}, {Kind: state.OpAttach, Topic: "A", Group: "g"}}); err != nil {
		t.Fatal(err)
	}
	var rs [1]store.Result
	for i := range 400 {
		s.Append([]store.Message{{Topic: "A", Queue: int32(i % 3), Body: bytes.Repeat([]byte("x"), 300)}}, rs[:])
		if rs[0].Err != nil {
			t.Fatal(rs[0].Err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return m
}

// answers are the bounds of the queues and what the group is owed.
func answers(t *testing.T, m vfs.FS) string {
	t.Helper()
	s, err := store.Open(store.Options{Dir: "/s", FS: vfs.NewOverlay(m), Exchange: fanout.New()})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for id := range int32(3) {
		low, high := s.Queue("A", id, true).Range()
		fmt.Fprintln(&b, id, low, high)
	}
	fmt.Fprintln(&b, len(s.Pending("A", 0, 1000)), s.Bindings())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func files(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		full := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			maps.Copy(out, files(t, fsys, full))
		} else if name != "lock" {
			b, err := vfs.ReadFile(fsys, full, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			out[full] = string(b)
		}
	}
	return out
}

func write(t *testing.T, fsys vfs.FS, name string, off int64, b []byte) {
	t.Helper()
	f, err := fsys.Open(name)
	if err == nil {
		_, err = f.WriteAt(b, off)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestViewsAreBuiltAgainWithTheSameAnswersLaw1(t *testing.T) {
	index := ""
	for name := range files(t, directory(t), "/s") {
		if strings.HasSuffix(name, ".idx") && (index == "" || name < index) {
			index = name
		}
	}
	for _, tc := range []struct {
		name     string
		give     func(*testing.T, *vfs.Mem)
		exchange func() state.Exchange
		all      bool
	}{
		{"a damaged index file", func(t *testing.T, m *vfs.Mem) { write(t, m, index, 100, []byte{1, 2, 3, 4, 5, 6, 7, 8}) }, fanout.New, false},
		{"a damaged checkpoint", func(t *testing.T, m *vfs.Mem) { write(t, m, "/s/fusionmq/checkpoint", 30, []byte{9, 9, 9}) }, fanout.New, false},
		{"an index file that is gone", func(t *testing.T, m *vfs.Mem) {
			if err := m.Remove(index); err != nil {
				t.Fatal(err)
			}
		}, fanout.New, false},
		{"everything, asked for", func(*testing.T, *vfs.Mem) {}, fanout.New, true},
		{"by who does not know what groups are owed", func(t *testing.T, m *vfs.Mem) { write(t, m, index, 100, []byte{1, 2, 3, 4, 5, 6, 7, 8}) }, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := directory(t)
			want := answers(t, m)
			tc.give(t, m)
			before := files(t, m, "/s")
			o := repair.Options{Dir: "/s", FS: m, Exchange: tc.exchange, All: tc.all}
			p, err := repair.Plan(context.Background(), o)
			if err != nil || len(p.Actions) < 2 || p.Actions[len(p.Actions)-1].Kind != "rebuild" || len(p.Beyond) > 0 {
				t.Fatalf("plan %+v, %v", p, err)
			}
			if diff := cmp.Diff(before, files(t, m, "/s")); diff != "" {
				t.Fatalf("the plan has changed files:\n%s", diff)
			}
			r, err := repair.Run(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(p.Actions, r.Actions); diff != "" {
				t.Errorf("actions (-planned +done):\n%s", diff)
			}
			if r.After.Err() != nil {
				t.Errorf("afterwards: %v", r.After.Err())
			}
			if got := answers(t, m); got != want {
				t.Errorf("answers\n%s\nwant\n%s", got, want)
			}
			for name, b := range files(t, m, "/s/commitlog") {
				if before[name] != b {
					t.Errorf("%s has changed", name)
				}
			}
		})
	}
}

func TestNothingIsDoneToASoundDirectory(t *testing.T) {
	m := directory(t)
	before := files(t, m, "/s")
	r, err := repair.Run(context.Background(), repair.Options{Dir: "/s", FS: m, Exchange: fanout.New})
	if err != nil || len(r.Actions) > 0 || r.After != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if diff := cmp.Diff(before, files(t, m, "/s")); diff != "" {
		t.Errorf("files have changed:\n%s", diff)
	}
}

func TestAConfigurationThatIsDamagedIsSetAside(t *testing.T) {
	m := directory(t)
	write(t, m, "/s/config/topics.json", 0, []byte("xxxx"))
	r, err := repair.Run(context.Background(), repair.Options{Dir: "/s", FS: m, Exchange: fanout.New})
	if err != nil || r.After.Err() != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(r.Actions) != 2 || r.Actions[0].Kind != "replace" || r.Actions[0].File != "config/topics.json" {
		t.Errorf("actions %+v", r.Actions)
	}
	aside := false
	for name := range files(t, m, "/s/config") {
		aside = aside || strings.Contains(name, "topics.json.damaged-")
	}
	if !aside {
		t.Error("the damaged file is not kept")
	}
}

// What is beyond repair is said, and nothing is removed that only makes the next start slower.
func TestDamageInTheLogIsSaidAndLeft(t *testing.T) {
	m := directory(t, 4830) // the record that byte 5000 is in
	write(t, m, "/s/commitlog/00000000000000000000", 5000, make([]byte, 900))
	before := files(t, m, "/s")
	r, err := repair.Run(context.Background(), repair.Options{Dir: "/s", FS: m, Exchange: fanout.New})
	if err != nil || len(r.Actions) > 0 || len(r.Beyond) == 0 || !strings.Contains(r.Beyond[0], "commitlog/00000000000000000000") {
		t.Fatalf("%+v, %v", r, err)
	}
	if diff := cmp.Diff(before, files(t, m, "/s")); diff != "" {
		t.Errorf("files have changed:\n%s", diff)
	}
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	m := directory(t)
	s, err := store.Open(store.Options{Dir: "/s", FS: m})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, f := range []func(context.Context, repair.Options) (*repair.Result, error){repair.Plan, repair.Run} {
		var held *vfs.HeldError
		if _, err := f(context.Background(), repair.Options{Dir: "/s", FS: m}); !errors.As(err, &held) || !strings.Contains(err.Error(), "process ") {
			t.Errorf("got %v", err)
		}
	}
}

func TestADirectoryOfAnApacheBrokerIsLeft(t *testing.T) {
	all, _, err := vectors.Load("5.3.3-lmq")
	if err != nil {
		t.Fatal(err)
	}
	m := vfs.NewMem()
	for name, b := range all {
		if name == "timerwheel" {
			continue
		}
		name = filepath.Join("/s", name)
		if err := m.MkdirAll(filepath.Dir(name)); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Create(name); err != nil {
			t.Fatal(err)
		}
		write(t, m, name, 0, b)
	}
	if _, err := repair.Run(context.Background(), repair.Options{Dir: "/s", FS: m}); !errors.Is(err, repair.ErrForeign) {
		t.Errorf("got %v", err)
	}
	if r, err := check.Run(context.Background(), check.Options{Dir: "/s", FS: m}); err != nil || r.Err() != nil {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}
