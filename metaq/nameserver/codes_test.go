package nameserver_test

import (
	"hash/crc32"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/nameserver"
	"github.com/fusionmq/fusionmq/metaq/remoting"
)

func TestRegistrationRules(t *testing.T) {
	f := start(t, nameserver.Config{})
	c := f.dial(t)
	body := topics(1, "T", "U")
	for _, tc := range []struct {
		name, body, want string
		ext              []string
		code             int32
	}{
		{name: "empty body", body: "", want: "the body is empty", code: remoting.RespInvalidParameter},
		{name: "null body", body: "null", want: "starts with 'n'", code: remoting.RespInvalidParameter},
		{name: "list", body: "[]", want: "starts with '['", code: remoting.RespInvalidParameter},
		{name: "no topics", body: "{}", want: "topicConfigTable is missing", code: remoting.RespInvalidParameter},
		{name: "cut-off zlib", body: "\x78\x9c\x00", want: "body", code: remoting.RespInvalidParameter},
		{name: "wrong checksum", body: body, ext: []string{"bodyCrc32", "1"}, want: "crc32 not match", code: remoting.RespSystemError},
		{name: "one topic from a stranger", body: topics(1, "T"), want: "send all topics first", code: remoting.RespSystemError},
		{name: "no name", body: body, ext: []string{"brokerName", ""}, want: "brokerName is missing", code: remoting.RespInvalidParameter},
		{name: "comma in the address", body: body, ext: []string{"brokerAddr", "a:1,b:2"}, want: "host:port", code: remoting.RespSystemError},
		{name: "no port", body: body, ext: []string{"brokerAddr", "a"}, want: "host:port", code: remoting.RespSystemError},
		{name: "id", body: body, ext: []string{"brokerId", "x"}, want: `field brokerId: "x" is not`, code: remoting.RespInvalidParameter},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ext := append([]string{"brokerName", "a", "brokerAddr", "10.0.0.1:1", "clusterName", "C", "brokerId", "0"}, tc.ext...)
			h, _ := c.ask(remoting.ReqRegisterBroker, []byte(tc.body), ext...)
			if h.Code != tc.code || !strings.Contains(h.Remark, tc.want) {
				t.Errorf("got %s %q, want %s with %q", remoting.ResponseName(h.Code), h.Remark, remoting.ResponseName(tc.code), tc.want)
			}
			if _, h := c.route("T"); h.Code != remoting.RespTopicNotExist {
				t.Error("something was registered")
			}
		})
	}
	sum := strconv.Itoa(int(crc32.ChecksumIEEE([]byte(body)) & 0x7FFFFFFF))
	h, _ := c.ask(remoting.ReqRegisterBroker, []byte(body), "brokerName", "a", "brokerAddr", "10.0.0.1:1", "clusterName", "C", "brokerId", "0", "bodyCrc32", sum)
	c.want(0, h)
	// A known broker may send a single changed topic; the others stay.
	c.want(0, c.register("a", "10.0.0.1:1", 0, topics(2, "V")))
	_, list := c.ask(remoting.ReqGetAllTopicListFromNameServer, nil)
	if string(list) != `{"topicList":["T","U","V"]}` {
		t.Errorf("got %s", list)
	}
	// Names that cannot be topics are left out, the rest registers.
	c.want(0, c.register("a", "10.0.0.1:1", 0, topics(3, "W", "no good", strings.Repeat("x", 300))))
	if _, list = c.ask(remoting.ReqGetAllTopicListFromNameServer, nil); string(list) != `{"topicList":["T","U","V","W"]}` {
		t.Errorf("got %s", list)
	}
}

func TestAnAddressUnderAnotherIdentityReplacesTheOld(t *testing.T) {
	tab := nameserver.NewTable()
	now := time.UnixMilli(1)
	reg := func(name, addr string, id, state int64) (nameserver.Registered, error) {
		return tab.Register(nameserver.Registration{Cluster: "C", Broker: name, ID: id, Addr: addr, Version: remoting.DataVersion{StateVersion: state},
			Topics: map[string]remoting.TopicConfig{"T": remoting.NewTopicConfig("T"), "U": remoting.NewTopicConfig("U")}}, nil, now)
	}
	must := func(r nameserver.Registered, err error) nameserver.Registered {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	members := func() map[int64]string { return tab.Members("C", "a", netip.Addr{}).BrokerAddrs }
	must(reg("a", "x:1", 0, 5))
	must(reg("a", "x:1", 1, 5)) // the same process, now a replica
	if m := members(); len(m) != 1 || m[1] != "x:1" {
		t.Errorf("got %v", m)
	}
	must(reg("a", "x:2", 0, 5))
	if r := must(reg("a", "x:3", 0, 4)); !r.Ignored { // older state than the live owner
		t.Error("not ignored")
	}
	if m := members(); m[0] != "x:2" {
		t.Errorf("got %v", m)
	}
	if r := must(reg("a", "x:3", 0, 6)); r.Ignored {
		t.Error("ignored")
	}
	if m := members(); m[0] != "x:3" || m[1] != "x:1" {
		t.Errorf("got %v", m)
	}
	if tab.Unregister("C", "a", 0, "x:2") {
		t.Error("the replaced address could still unregister")
	}
	if _, err := tab.Register(nameserver.Registration{Cluster: "D", Broker: "a", Addr: "y:1"}, nil, now); err == nil {
		t.Error("two clusters share a broker name")
	}
	if !tab.Unregister("C", "a", 0, "x:3") || !tab.Unregister("C", "a", 1, "x:1") {
		t.Error("could not unregister")
	}
	if got := tab.Topics(nil); len(got) != 0 {
		t.Errorf("topics of nobody: %v", got)
	}
}

func TestListsAndPermissions(t *testing.T) {
	f := start(t, nameserver.Config{})
	c := f.dial(t)
	c.want(0, c.register("a", "10.0.0.1:1", 0, topics(1, "T", "U")))
	c.want(0, c.register("b", "10.0.0.2:1", 0, topics(1, "T", "V")))
	ask := func(code int32, ext ...string) string {
		t.Helper()
		h, body := c.ask(code, nil, ext...)
		c.want(0, h)
		return string(body)
	}
	if got := ask(remoting.ReqGetTopicsByCluster, "cluster", "C"); got != `{"topicList":["T","U","V"]}` {
		t.Errorf("topics of the cluster: %s", got)
	}
	if got := ask(remoting.ReqGetTopicsByCluster, "cluster", "x"); got != `{"topicList":[]}` {
		t.Errorf("topics of no cluster: %s", got)
	}
	if got := ask(remoting.ReqGetSystemTopicListFromNS); got != `{"brokerAddr":"10.0.0.1:1","topicList":["C","a","b"]}` {
		t.Errorf("system topics: %s", got)
	}
	if got := ask(remoting.ReqGetBrokerMemberGroup, "clusterName", "C", "brokerName", "b"); got != `{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.2:1"},"brokerName":"b","cluster":"C"}}` {
		t.Errorf("members: %s", got)
	}
	if got := ask(remoting.ReqGetUnitTopicList); got != `{"topicList":[]}` {
		t.Errorf("unit topics: %s", got)
	}
	h, _ := c.ask(remoting.ReqWipeWritePermOfBroker, nil, "brokerName", "a")
	if c.want(0, h); h.Get("wipeTopicCount") != "2" {
		t.Errorf("got %v", h.Ext)
	}
	if r, _ := c.route("U"); r.QueueDatas[0].Perm != 4 {
		t.Errorf("perm %d after wiping", r.QueueDatas[0].Perm)
	}
	h, _ = c.ask(remoting.ReqAddWritePermOfBroker, nil, "brokerName", "a")
	if c.want(0, h); h.Get("addTopicCount") != "2" {
		t.Errorf("got %v", h.Ext)
	}
	ask(remoting.ReqDeleteTopicInNameServer, "topic", "T", "clusterName", "other")
	if r, _ := c.route("T"); r == nil || len(r.QueueDatas) != 2 {
		t.Error("deleted for another cluster, gone here")
	}
	ask(remoting.ReqDeleteTopicInNameServer, "topic", "T")
	if _, h := c.route("a b"); h.Code != remoting.RespTopicNotExist || !strings.Contains(h.Remark, "a b") || !strings.Contains(h.Remark, "there can be none") || strings.Contains(h.Remark, "created") {
		t.Errorf("route of a name that no topic may have: %+v", h)
	}
	if _, h := c.route("T"); h.Code != remoting.RespTopicNotExist || !strings.Contains(h.Remark, "T") {
		t.Errorf("got %d %q", h.Code, h.Remark)
	}
}

func TestKeyValueConfigurationIsKept(t *testing.T) {
	dir := t.TempDir()
	f := start(t, nameserver.Config{Dir: dir, OrderTopics: true})
	c := f.dial(t)
	ns := []string{"namespace", nameserver.OrderNamespace, "key", "T"}
	h, _ := c.ask(remoting.ReqGetKVConfig, nil, ns...)
	c.want(remoting.RespQueryNotFound, h)
	h, _ = c.ask(remoting.ReqGetKVListByNamespace, nil, ns...)
	c.want(remoting.RespQueryNotFound, h)
	h, _ = c.ask(remoting.ReqPutKVConfig, nil, append(ns, "value", "a:4;\u0001é")...)
	c.want(0, h)
	h, _ = c.ask(remoting.ReqPutKVConfig, nil, "namespace", "N", "key", "big", "value", strings.Repeat("x", 1<<20+1))
	c.want(remoting.RespSystemError, h)
	c.want(0, c.register("a", "10.0.0.1:1", 0, topics(1, "T", "U")))
	if r, _ := c.route("T"); r.OrderTopicConf != "a:4;\u0001é" {
		t.Errorf("got %+v", r)
	}

	g := start(t, nameserver.Config{Dir: dir})
	d := g.dial(t)
	h, _ = d.ask(remoting.ReqGetKVConfig, nil, ns...)
	if d.want(0, h); h.Get("value") != "a:4;\u0001é" {
		t.Errorf("after a restart: %v", h.Ext)
	}
	_, body := d.ask(remoting.ReqRegisterBroker, []byte(topics(1, "T", "U")), "brokerName", "a", "brokerAddr", "10.0.0.1:1", "clusterName", "C", "brokerId", "0")
	if want := `{"table":{"T":"a:4;\u0001é"}}`; string(body) != want {
		t.Errorf("a broker is told %s, want %s", body, want)
	}
	h, _ = d.ask(remoting.ReqDeleteKVConfig, nil, ns...)
	d.want(0, h)
	h, _ = d.ask(remoting.ReqDeleteKVConfig, nil, ns...)
	d.want(0, h)
}

func TestADamagedKeyValueFileDoesNotStopTheStart(t *testing.T) { // faults NSR-08
	for name, damage := range map[string]string{"empty": "", "null": "null", "not JSON": "\xff\xff", "null namespace": `{"configTable":{"N":null}}`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(v string) {
				f := start(t, nameserver.Config{Dir: dir})
				c := f.dial(t)
				h, _ := c.ask(remoting.ReqPutKVConfig, nil, "namespace", "N", "key", "k", "value", v)
				c.want(0, h)
			}
			put("1")
			put("2") // "1" is the backup now
			if err := os.WriteFile(filepath.Join(dir, nameserver.KVFile), []byte(damage), 0o600); err != nil {
				t.Fatal(err)
			}
			f := start(t, nameserver.Config{Dir: dir})
			c := f.dial(t)
			h, _ := c.ask(remoting.ReqGetKVConfig, nil, "namespace", "N", "key", "k")
			if readable := strings.HasPrefix(name, "null"); readable {
				c.want(remoting.RespQueryNotFound, h)
				return
			}
			if c.want(0, h); h.Get("value") != "1" {
				t.Errorf("got %v, want the backup's", h.Ext)
			}
			kept, _ := filepath.Glob(filepath.Join(dir, nameserver.KVFile+".damaged-*"))
			if len(kept) != 1 {
				t.Errorf("the damaged file is not kept: %v", kept)
			}
		})
	}
}

func TestEveryCodeIsAnswered(t *testing.T) { // faults REM-06, REM-13
	f := start(t, nameserver.Config{})
	c := f.dial(t)
	mine := []int32{100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 322, 327, 901, 904}
	bare := []int32{106, 206, 304, 311, 312, 313} // need no field
	for code := int32(-2); code < 1100; code++ {
		h, _ := c.ask(code, nil)
		switch {
		case slices.Contains(bare, code):
			c.want(0, h)
		case slices.Contains(mine, code):
			if h.Code != remoting.RespInvalidParameter || !strings.Contains(h.Remark, "is missing") {
				t.Errorf("code %d without fields: %d %q", code, h.Code, h.Remark)
			}
		default:
			if h.Code != remoting.RespRequestCodeNotSupported || !strings.Contains(h.Remark, " request type "+strconv.Itoa(int(code))) {
				t.Errorf("code %d: %d %q", code, h.Code, h.Remark)
			}
		}
	}
	for _, code := range []int32{65536 + 105, 9999, 200050, -1 << 31} {
		h, _ := c.ask(code, nil, "topic", "T")
		c.want(remoting.RespRequestCodeNotSupported, h)
	}
	if h, _ := c.ask(remoting.ReqSendMessage, nil); !strings.Contains(h.Remark, "SEND_MESSAGE") {
		t.Errorf("the name of the code is missing: %q", h.Remark)
	}
}

func TestManyTopicsFitOneRegistration(t *testing.T) { // faults NSR-09
	f := start(t, nameserver.Config{})
	c := f.dial(t)
	names := make([]string, 70_000)
	for i := range names {
		names[i] = strings.Repeat("t", 54) + strconv.Itoa(100000+i)
	}
	c.want(0, c.register("a", "10.0.0.1:1", 0, topics(1, names...)))
	c.want(0, c.register("a", "10.0.0.1:1", 0, topics(2, "OneMore")))
	for _, n := range []string{names[0], names[35_000], names[69_999], "OneMore"} {
		if r, h := c.route(n); r == nil {
			t.Errorf("%s: %d %s", n, h.Code, h.Remark)
		}
	}
}
