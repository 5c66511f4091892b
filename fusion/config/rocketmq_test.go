package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestImportTranslates(t *testing.T) {
	im, err := Import(strings.NewReader(`# sample
brokerClusterName = Prod
brokerName=broker-a
brokerId=0
namesrvAddr=10.0.0.1:9876;10.0.0.2:9876
brokerIP1=mq.example.com
listenPort=20911
deleteWhen=04
autoCreateTopicEnable=false
flushDiskType : SYNC_FLUSH
flushIntervalCommitLog 1000
storePathRootDir=/srv/mq \
  -data
transactionTimeOut=3000
someNewKey=1
maxMessageSize=1048576
maxMessageSize=2097152
messageDelayLevel=1s 5m 2h 30d
transactionCheckInterval=45000
transactionCheckMax=20
rejectTransactionMessage=true
`))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(path, im.YAML, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(Sources{File: path})
	if err != nil {
		t.Fatalf("%v\n%s", err, im.YAML)
	}
	for name, want := range map[string]string{
		"broker.cluster": "Prod", "broker.name": "broker-a", "broker.nameservers": "10.0.0.1:9876,10.0.0.2:9876",
		"advertise-host": "mq.example.com", "broker.addr": ":20911", "broker.auto-create-topics": "false", "store.flush": "sync",
		"store.flush-interval": "1s", "store.delete-hours": "04", "data": "/srv/mq -data", "broker.max-message-size": "2MiB",
		"store.delay-levels": "1s,5m,2h,720h", "broker.transaction-check-interval": "45s", "broker.transaction-check-max": "20", "broker.transactions": "false",
	} {
		for _, k := range l.Settings() {
			if k.Name == name && k.Text() != want {
				t.Errorf("%s = %q, want %q", name, k.Text(), want)
			}
		}
		if !strings.HasPrefix(l.Origin(name), "file") {
			t.Errorf("%s comes from %s", name, l.Origin(name))
		}
	}
	warned := strings.Join(im.Warnings, "\n")
	for _, w := range []string{"line 14: transactionTimeOut=3000 has no effect: producers are first asked 6 s after", "line 15: someNewKey=1", "line 16: maxMessageSize is set again in line 17"} {
		if !strings.Contains(warned, w) {
			t.Errorf("warnings lack %q:\n%s", w, warned)
		}
	}
	if !strings.Contains(string(im.YAML), "# transactionTimeOut=3000: ") {
		t.Errorf("the file does not keep transactionTimeOut as a comment:\n%s", im.YAML)
	}
}

func TestImportRefuses(t *testing.T) {
	for _, tc := range []struct{ name, give, want string }{
		{"a slave", "brokerRole=SLAVE", "line 1: brokerRole=SLAVE: only a master"},
		{"a slave by number", "\nbrokerId=1", "line 2: brokerId=1: only a master"},
		{"access control", "aclEnable=true", "no access control"},
		{"replication", "enableControllerMode=true", "no replication"},
		{"a bad number", "flushIntervalCommitLog=soon", "line 1: flushIntervalCommitLog=soon: want a number of milliseconds"},
		{"a value out of range", "defaultTopicQueueNums=0", "line 1: defaultTopicQueueNums=0: the least is 1"},
		{"a level that is none", "messageDelayLevel=1s soon", `messageDelayLevel=1s soon: "soon" is no delay; want a number and s, m, h or d`},
		{"a level in milliseconds", "messageDelayLevel=1ms", `"1ms" is no delay`},
		{"a level of no time", "messageDelayLevel=1s 0s", "want a time from 1ms to 960h"},
		{"a level of half a year", "messageDelayLevel=180d", "want a time from 1ms to 960h"},
		{"too many levels", "messageDelayLevel=" + strings.Repeat("1s ", 65), "65 of them, at most 64"},
		{"a bad port", "listenPort=x", "port \"x\""},
		{"a bad address", "bindAddress=x", "want an address"},
		{"a binary file", "\x7fELF\x02\x01\x00=1", "line 1: byte 5 is no text"},
		{"no value", "what", `"what" has no value`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Import(strings.NewReader(tc.give)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Import(%q) = %v, want it to contain %q", tc.give, err, tc.want)
			}
		})
	}
}

// A store with small segments comes with a message size that no segment takes, stated or by default.
func TestImportFitsMessagesToSegments(t *testing.T) {
	whole, err := os.ReadFile("testdata/broker-5.3.3.conf") // what mqadmin getBrokerConfig prints
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, give string
		want       int64
		warning    string // "" is none about the size
	}{
		{"everything that a broker says", string(whole), 64 << 10, "maxMessageSize=4194304 becomes 64KiB: the most is half of a segment, which mappedFileSizeCommitLog makes 128KiB"},
		{"size not stated", "brokerName=a\nmappedFileSizeCommitLog=1048576\n", 512 << 10, "line 2: the default of 4MiB becomes 512KiB"},
		{"size before the segments", "maxMessageSize=65537\nmappedFileSizeCommitLog=131072\n", 64 << 10, "line 1: maxMessageSize=65537 becomes 64KiB"},
		{"both fit", "maxMessageSize=65536\nmappedFileSizeCommitLog=131072\n", 64 << 10, ""},
		{"segments as ever", "mappedFileSizeCommitLog=1073741824\n", 4 << 20, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			im, err := Import(strings.NewReader(tc.give))
			if err != nil {
				t.Fatal(err)
			}
			l, err := Load(Sources{File: writeFile(t, string(im.YAML))})
			if err != nil {
				t.Fatalf("what Import wrote is refused: %v\n%s", err, im.YAML)
			}
			if l.Broker.MaxMessageSize != tc.want {
				t.Errorf("broker.max-message-size = %d, want %d", l.Broker.MaxMessageSize, tc.want)
			}
			warned := strings.Join(im.Warnings, "\n")
			if tc.warning == "" && strings.Contains(warned, "becomes") || !strings.Contains(warned, tc.warning) {
				t.Errorf("warnings %q, want %q among them", warned, tc.warning)
			}
		})
	}
}

func TestImportIPv6BindAddress(t *testing.T) {
	im, err := Import(strings.NewReader("bindAddress=::1\n"))
	if err != nil || !strings.Contains(string(im.YAML), `addr: "[::1]:10911"`) {
		t.Errorf("Import = %s, %v", im.YAML, err)
	}
}

func FuzzImport(f *testing.F) {
	for _, s := range []string{"", "a=b", "a", "\\", "a=\\\nb", "listenPort=1\nlistenPort=2", "brokerName=x\x00", "!c\n#d", "namesrvAddr=;", "a==\\\\\n", "brokerClusterName=\" #", "mappedFileSizeCommitLog=65536", "mappedFileSizeCommitLog=131072\nmaxMessageSize=70000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		im, err := Import(strings.NewReader(text))
		if err != nil {
			return
		}
		var c Config
		ld := loader{byName: map[string]Key{}, origin: map[string]string{}}
		for _, k := range keys(&c) {
			ld.byName[k.Name] = k
			ld.names = append(ld.names, k.Name)
			ld.apply(k, k.Default, "default")
		}
		ld.yaml("f", im.YAML)
		ld.together(&c)
		if len(ld.errs) > 0 {
			t.Errorf("Import(%q) wrote a file that does not load: %v\n%s", text, ld.errs, im.YAML)
		}
	})
}
