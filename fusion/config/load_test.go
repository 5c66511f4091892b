package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fusionmq.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadTakesTheStrongestSource(t *testing.T) {
	file := writeFile(t, "broker:\n  addr: :1\n  default-queues: 3\ndata: from-file\n")
	for _, tc := range []struct {
		name                     string
		give                     Sources
		wantData, wantDataOrigin string
	}{
		{"nothing set", Sources{}, "./data", "default"},
		{"file over default", Sources{File: file}, "from-file", "file " + file + " line 4"},
		{"environment over file", Sources{File: file, Env: []string{"FUSIONMQ_DATA=from-env"}}, "from-env", "environment FUSIONMQ_DATA"},
		{"flag over environment", Sources{File: file, Env: []string{"FUSIONMQ_DATA=from-env"}, Flags: map[string]string{"data": "from-flag"}}, "from-flag", "flag --data"},
		{"flag over default", Sources{Flags: map[string]string{"data": "from-flag"}}, "from-flag", "flag --data"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := Load(tc.give)
			if err != nil {
				t.Fatal(err)
			}
			if l.Data != tc.wantData || l.Origin("data") != tc.wantDataOrigin {
				t.Errorf("data = %q from %q, want %q from %q", l.Data, l.Origin("data"), tc.wantData, tc.wantDataOrigin)
			}
			wantQueues := int64(8)
			if tc.give.File != "" {
				wantQueues = 3
			}
			if l.Broker.DefaultQueues != wantQueues {
				t.Errorf("broker.default-queues = %d, want %d", l.Broker.DefaultQueues, wantQueues)
			}
		})
	}
}

func TestLoadReadsEveryForm(t *testing.T) {
	_, err := Load(Sources{File: writeFile(t, `
broker.idle-timeout: 90s           # dots work too
broker:
  nameservers: [a:1, "b:2"]
  max-message-size: 8MiB
  auto-create-topics: no-it-is-not
`)})
	if err == nil || !strings.Contains(err.Error(), `line 6: broker.auto-create-topics is "no-it-is-not": want true or false`) {
		t.Errorf("err = %v, want it to name line 6", err)
	}
	l, err := Load(Sources{File: writeFile(t, `
broker.idle-timeout: 90s
broker:
  nameservers: [a:1, "b:2"]
  max-message-size: 2MiB
store:
  segment-size: 1048576000
`), Env: []string{"FUSIONMQ_PYROSCOPE_URL=https://p.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if l.Broker.IdleTimeout != 90*time.Second || strings.Join(l.Broker.Nameservers, "|") != "a:1|b:2" || l.Broker.MaxMessageSize != 2<<20 ||
		l.Store.SegmentSize != 1048576000 || l.Pyroscope.URL != "https://p.example.com" {
		t.Errorf("loaded %+v", l.Config)
	}
	for _, empty := range []string{"", "# only a comment\n", "---\n", "null\n", "{}\n"} {
		if _, err := Load(Sources{File: writeFile(t, empty)}); err != nil {
			t.Errorf("file %q: %v", empty, err)
		}
	}
}

func TestLoadNamesMistakes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		file  string
		env   []string
		flags map[string]string
		want  []string // each must be in the message
	}{
		{"unknown key in a section", "broker:\n  addres: :1\n", nil, nil, []string{"line 2", `unknown key "broker.addres"`, `did you mean "broker.addr"?`}},
		{"unknown section", "brokr:\n  addr: :1\n", nil, nil, []string{"line 1", `unknown section "brokr"`, `did you mean "broker"?`}},
		{"camel case", "broker:\n  autoCreateTopics: true\n", nil, nil, []string{`did you mean "broker.auto-create-topics"?`}},
		{"right key in the wrong section", "store:\n  ack-timeout: 5s\n", nil, nil, []string{`did you mean "notify.ack-timeout"?`}},
		{"right key without its section", "segment-size: 1GiB\n", nil, nil, []string{`did you mean "store.segment-size"?`}},
		{"nothing near", "frobnicate: 1\n", nil, nil, []string{`unknown key "frobnicate"; see docs/configuration.md`}},
		{"section with a value", "broker: :10911\n", nil, nil, []string{"line 1", `"broker" is a section`, `"broker.addr"`}},
		{"key with keys below it", "data:\n  dir: x\n", nil, nil, []string{"line 1: data want a value"}},
		{"key without a value", "data:\n", nil, nil, []string{"data has no value"}},
		{"set twice with dots", "broker.addr: :1\nbroker:\n  addr: :2\n", nil, nil, []string{"line 3: broker.addr is set a second time; the first is in line 1"}},
		{"a list instead of keys", "- data\n", nil, nil, []string{"want keys"}},
		{"two documents", "data: a\n---\ndata: b\n", nil, nil, []string{"second document"}},
		{"broken YAML", "data: [\n", nil, nil, []string{"line 1"}},
		{"alias", "data: &a x\n", nil, nil, []string{"anchors and aliases"}},
		{"over the limit", "broker:\n  default-queues: 1025\n", nil, nil, []string{`broker.default-queues is "1025": the most is 1024`}},
		{"below the limit", "store:\n  segment-size: 4KiB\n", nil, nil, []string{`store.segment-size is "4KiB": the least is 64KiB`}},
		{"not a multiple", "store:\n  segment-size: 100000\n", nil, nil, []string{"want a multiple of 4KiB"}},
		{"no unit", "notify:\n  ack-timeout: 5\n", nil, nil, []string{`notify.ack-timeout is "5": want a time with its unit`}},
		{"bad port", "http:\n  addr: localhost:70000\n", nil, nil, []string{`http.addr is "localhost:70000": port "70000"`}},
		{"no port", "", nil, map[string]string{"broker.addr": "10911"}, []string{"flag --broker-addr: broker.addr", "want host:port"}},
		{"advertised port", "", nil, map[string]string{"advertise-host": "h:1"}, []string{"without a port"}},
		{"advertised everything", "", nil, map[string]string{"advertise-host": "0.0.0.0"}, []string{"clients need one"}},
		{"unknown variable of a section", "", []string{"FUSIONMQ_BROKER_ADR=:1"}, nil, []string{`unknown key "FUSIONMQ_BROKER_ADR"`, `did you mean "FUSIONMQ_BROKER_ADDR"?`}},
		{"unknown variable near a key", "", []string{"FUSIONMQ_DATTA=x"}, nil, []string{`did you mean "FUSIONMQ_DATA"?`}},
		{"letters swapped in the section of a variable", "", []string{"FUSIONMQ_STOER_FLUSH=sync"}, nil, []string{`unknown key "FUSIONMQ_STOER_FLUSH"`, `did you mean "FUSIONMQ_STORE_FLUSH"?`}},
		{"variable with a wrong section", "", []string{"FUSIONMQ_STROAGE_SEGMENT_SIZE=1GiB"}, nil, []string{`did you mean "FUSIONMQ_STORE_SEGMENT_SIZE"?`}},
		{"variable without its section", "", []string{"FUSIONMQ_ACK_TIMEOUT=1s"}, nil, []string{`did you mean "FUSIONMQ_NOTIFY_ACK_TIMEOUT"?`}},
		{"variable near nothing", "", []string{"FUSIONMQ_FROBNICATE=1"}, nil, []string{`environment: unknown key "FUSIONMQ_FROBNICATE"; see docs/configuration.md`}},
		{"variable of a prefix alone", "", []string{"FUSIONMQ_=1"}, nil, []string{`unknown key "FUSIONMQ_"`}},
		{"a port that no service link has", "", []string{"FUSIONMQ_BROKER_PORT=10911"}, nil, []string{`unknown key "FUSIONMQ_BROKER_PORT"`}},
		{"variable near another owner's", "", []string{"FUSIONMQ_CONFIGURATION=x"}, nil, []string{`unknown key "FUSIONMQ_CONFIGURATION"`}},
		{"bad variable", "", []string{"FUSIONMQ_INSECURE=1"}, nil, []string{`environment FUSIONMQ_INSECURE: insecure is "1": want true or false`}},
		{"production without a word about access", "profile: production\n", nil, nil, []string{"line 1: profile is production", "--insecure"}},
		{"all closed", "", nil, map[string]string{"nameserver.addr": "off", "broker.addr": "off", "notify.addr": "off", "http.addr": "off"}, []string{"nothing would be served"}},
		{"message larger than half a segment", "store: {segment-size: 1MiB}\n", nil, nil, []string{"broker.max-message-size is 4MiB; the most is half of store.segment-size, which is 1MiB"}},
		{"all mistakes at once", "dta: x\nbroker:\n  addr: 1\n", []string{"FUSIONMQ_LOG_LEVEL=loud"}, nil, []string{`"dta"`, "broker.addr", "FUSIONMQ_LOG_LEVEL"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Sources{Env: tc.env, Flags: tc.flags}
			if tc.file != "" {
				s.File = writeFile(t, tc.file)
			}
			_, err := Load(s)
			if err == nil {
				t.Fatalf("Load(%q, %q, %q) succeeded", tc.file, tc.env, tc.flags)
			}
			var first *Error
			if !errors.As(err, &first) || first.Where == "" {
				t.Errorf("error %v does not say where", err)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("Load(%q, %q, %q) = %v\nwant it to contain %q", tc.file, tc.env, tc.flags, err, w)
				}
			}
		})
	}
}

func TestLoadLeavesForeignVariablesAlone(t *testing.T) {
	_, err := Load(Sources{Env: []string{
		"FUSIONMQ_ADDR=x", "FUSIONMQ_CONFIG=x", "FUSIONMQ_BIN=x", "FUSIONMQ_BENCH_START_BYTES=1", "PATH=x", "FUSIONMQ_",
		// service links of fusionmq and fusionmq-broker
		"FUSIONMQ_SERVICE_HOST=10.0.0.1", "FUSIONMQ_SERVICE_PORT=10911", "FUSIONMQ_PORT=tcp://10.0.0.1:10911", "FUSIONMQ_PORT_10911_TCP=tcp://10.0.0.1:10911",
		"FUSIONMQ_BROKER_SERVICE_HOST=10.0.0.1", "FUSIONMQ_BROKER_SERVICE_PORT_BROKER=10911", "FUSIONMQ_BROKER_PORT=tcp://10.0.0.1:10911",
		"FUSIONMQ_BROKER_PORT_10911_TCP_PROTO=tcp", "FUSIONMQ_BROKER_PORT_10911_TCP_PORT=10911", "FUSIONMQ_BROKER_PORT_10911_TCP_ADDR=10.0.0.1",
	}})
	if err != nil {
		t.Error(err)
	}
}

func TestLoadMissingFile(t *testing.T) {
	_, err := Load(Sources{File: filepath.Join(t.TempDir(), "none.yaml")})
	if err == nil || !strings.Contains(err.Error(), "none.yaml: cannot be read: no such file") {
		t.Errorf("err = %v", err)
	}
}

func TestProductionChangesDefaultsOnly(t *testing.T) {
	l, err := Load(Sources{Flags: map[string]string{"profile": "production", "insecure": "true", "broker.auto-create-groups": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	if l.Broker.AutoCreateTopics || !l.Broker.AutoCreateGroups {
		t.Errorf("topics %v, groups %v; want false (profile) and true (flag)", l.Broker.AutoCreateTopics, l.Broker.AutoCreateGroups)
	}
	if got := l.Origin("broker.auto-create-topics"); got != "profile production" {
		t.Errorf("origin %q", got)
	}
}

func TestKeysAreComplete(t *testing.T) {
	env, names := map[string]bool{}, map[string]bool{}
	known := map[string]bool{}
	for _, s := range sections {
		known[s.name] = true
	}
	for _, k := range Keys() {
		if k.Doc == "" || k.Form() == "" || !known[k.Section()] {
			t.Errorf("%s: doc %q, form %q, section %q known %v", k.Name, k.Doc, k.Form(), k.Section(), known[k.Section()])
		}
		if env[k.Env()] || names[k.Name] {
			t.Errorf("%s: name or variable %s is taken", k.Name, k.Env())
		}
		if foreignEnv(k.Env(), "tcp://") {
			t.Errorf("%s: variable %s belongs to someone else", k.Name, k.Env())
		}
		env[k.Env()], names[k.Name] = true, true
		if _, isInt := k.value.(intValue); isInt && k.Unit == "" {
			t.Errorf("%s: a bare number needs a unit", k.Name)
		}
	}
}

func TestShownConfigurationLoadsAgain(t *testing.T) {
	give := map[string]string{"data": `C: \ "odd" # path`, "advertise-host": "::1", "fast.addr": "off", "log.level": "debug"}
	l, err := Load(Sources{Flags: give})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteYAML(&b, l); err != nil {
		t.Fatal(err)
	}
	again, err := Load(Sources{File: writeFile(t, b.String())})
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	want, got := l.Settings(), again.Settings()
	for i := range want {
		if got[i].Text() != want[i].Text() {
			t.Errorf("%s = %q, want %q", want[i].Name, got[i].Text(), want[i].Text())
		}
	}
}

func TestDocumentationIsUpToDate(t *testing.T) {
	const path = "../../docs/configuration.md"
	var b bytes.Buffer
	if err := WriteDocs(&b); err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s differs from the table (%v); run: go generate ./config", path, err)
	}
}

func FuzzLoadYAML(f *testing.F) {
	for _, s := range []string{"", "data: x", "broker: {addr: :1}", "broker:\n  nameservers: [a:1]", "a: &a [*a]", "- 1", "\x00", "data: \"", "? {}\n: x", "1: 2", strings.Repeat("[", 2000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var c Config
		ld := loader{byName: map[string]Key{}, origin: map[string]string{}}
		for _, k := range keys(&c) {
			ld.byName[k.Name] = k
			ld.names = append(ld.names, k.Name)
			ld.apply(k, k.Default, "default")
		}
		ld.yaml("f", []byte(text))
		for _, k := range keys(&c) { // whatever was read, what stands must be valid
			var again Config
			for _, k2 := range keys(&again) {
				if k2.Name == k.Name {
					if err := k2.value.set(k.Text()); err != nil {
						t.Errorf("%s = %q was accepted: %v", k.Name, k.Text(), err)
					}
				}
			}
		}
	})
}
