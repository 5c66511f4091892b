package nameserver

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// OrderNamespace is the key-value namespace of fixed queue lists: topic to "broker-a:4;broker-b:4".
const OrderNamespace = "ORDER_TOPIC_CONFIG"

// Config of a name server. The zero value of a field means its default.
type Config struct {
	Dir string // where the key-value configuration is kept. Default "": nowhere
	FS  vfs.FS // default vfs.OS
	// OrderTopics adds the queue lists of OrderNamespace to routes; Java producers then use exactly those queues.
	OrderTopics bool
	Log         *slog.Logger
	Now         func() time.Time
	// Tick is the clock of expiry. Default a ticker of 5 s.
	Tick func() (<-chan time.Time, func())
}

// NameServer answers the name server's requests. It is a server.Handler; pass Closed as the server's Closed hook.
type NameServer struct {
	cfg   Config
	table *Table
	kv    *kv

	stop    chan struct{}
	stopped sync.WaitGroup
	once    sync.Once
}

// New reads the key-value configuration and starts the expiry of silent brokers, which ends with Close.
func New(cfg Config) (*NameServer, error) {
	if cfg.FS == nil {
		cfg.FS = vfs.OS
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Tick == nil {
		cfg.Tick = func() (<-chan time.Time, func()) {
			t := time.NewTicker(5 * time.Second)
			return t.C, t.Stop
		}
	}
	k, err := openKV(cfg.FS, cfg.Dir, func() int64 { return cfg.Now().UnixMilli() })
	if k == nil {
		return nil, err
	}
	if err != nil {
		cfg.Log.Error("key-value configuration of the name server was damaged", "error", err)
	}
	n := &NameServer{cfg: cfg, table: NewTable(), kv: k, stop: make(chan struct{})}
	n.stopped.Add(1)
	go n.expire()
	return n, nil
}

// Close stops the expiry.
func (n *NameServer) Close() {
	n.once.Do(func() { close(n.stop) })
	n.stopped.Wait()
}

func (n *NameServer) expire() {
	defer n.stopped.Done()
	tick, stop := n.cfg.Tick()
	defer stop()
	for {
		select {
		case <-n.stop:
			return
		case <-tick:
		}
		for _, addr := range n.table.Expire(n.cfg.Now()) {
			n.cfg.Log.Warn("broker expired", "addr", addr)
		}
	}
}

// Table is the route table, for inspection.
func (n *NameServer) Table() *Table { return n.table }

// inProcess owns the registrations of brokers in this process.
type inProcess struct{}

// Register registers a broker of this process. It has to be repeated like any other: every 30 s, and when topics change.
func (n *NameServer) Register(r Registration) (Registered, error) { return n.register(r, inProcess{}) }

// Unregister removes a broker.
func (n *NameServer) Unregister(cluster, broker string, id int64, addr string) {
	if n.table.Unregister(cluster, broker, id, addr) {
		n.cfg.Log.Info("broker unregistered", "broker", broker, "id", id, "addr", addr)
	}
}

func (n *NameServer) register(r Registration, owner any) (Registered, error) {
	out, err := n.table.Register(r, owner, n.cfg.Now())
	switch {
	case err != nil:
		n.cfg.Log.Warn("broker registration refused", "broker", r.Broker, "addr", r.Addr, "error", err)
	case out.First:
		n.cfg.Log.Info("broker registered", "cluster", r.Cluster, "broker", r.Broker, "id", r.ID, "addr", r.Addr, "topics", len(r.Topics))
	}
	if out.Skipped > 0 {
		n.cfg.Log.Warn("topics of a broker left out: bad name, queue count or too many", "broker", r.Broker, "topics", out.Skipped)
	}
	return out, err
}

// Closed is the hook for connections that end: what registered on one goes with it.
func (n *NameServer) Closed(c *server.Conn, _ error) {
	for _, addr := range n.table.Lost(c) {
		n.cfg.Log.Warn("broker gone: its connection closed", "addr", addr, "remote", c.Remote())
	}
}

// answer is a successful response: ext fields in pairs, and a body.
type answer struct {
	ext  []string
	body []byte
}

// fault is a response with another code.
type fault struct {
	code   int32
	remark string
}

func (f *fault) Error() string { return f.remark }

// Serve answers a burst.
func (n *NameServer) Serve(b *server.Burst) {
	for i := range b.Requests {
		if !b.Continue() {
			return
		}
		r := &b.Requests[i]
		handle, ok := handlers[r.Code]
		if !ok {
			b.Unsupported(r)
			continue
		}
		a, err := handle(n, b.Conn, r)
		if err != nil {
			code, remark := faultOf(err)
			b.Fail(r, code, remark)
			continue
		}
		e := b.Reply(r, remoting.RespSuccess, "")
		for i := 0; i+1 < len(a.ext); i += 2 {
			e.String(a.ext[i], a.ext[i+1])
		}
		b.End(a.body)
	}
}

func faultOf(err error) (int32, string) {
	var f *fault
	var field *remoting.FieldError
	var body *remoting.BodyError
	switch {
	case errors.As(err, &f):
		return f.code, f.remark
	case errors.As(err, &field), errors.As(err, &body):
		return remoting.RespInvalidParameter, err.Error()
	}
	return remoting.RespSystemError, err.Error()
}

var handlers = map[int32]func(*NameServer, *server.Conn, *server.Request) (answer, error){
	remoting.ReqGetRouteInfoByTopic:           (*NameServer).route,
	remoting.ReqGetBrokerClusterInfo:          (*NameServer).clusterInfo,
	remoting.ReqRegisterBroker:                (*NameServer).registerBroker,
	remoting.ReqUnregisterBroker:              (*NameServer).unregisterBroker,
	remoting.ReqQueryDataVersion:              (*NameServer).queryDataVersion,
	remoting.ReqBrokerHeartbeat:               (*NameServer).heartbeat,
	remoting.ReqGetBrokerMemberGroup:          (*NameServer).memberGroup,
	remoting.ReqPutKVConfig:                   (*NameServer).putKV,
	remoting.ReqGetKVConfig:                   (*NameServer).getKV,
	remoting.ReqDeleteKVConfig:                (*NameServer).deleteKV,
	remoting.ReqGetKVListByNamespace:          (*NameServer).listKV,
	remoting.ReqGetAllTopicListFromNameServer: (*NameServer).allTopics,
	remoting.ReqGetTopicsByCluster:            (*NameServer).topicsByCluster,
	remoting.ReqGetSystemTopicListFromNS:      (*NameServer).systemTopics,
	remoting.ReqDeleteTopicInNameServer:       (*NameServer).deleteTopic,
	remoting.ReqRegisterTopicInNameServer:     (*NameServer).registerTopic,
	remoting.ReqWipeWritePermOfBroker:         (*NameServer).wipeWritePerm,
	remoting.ReqAddWritePermOfBroker:          (*NameServer).addWritePerm,
	remoting.ReqGetUnitTopicList:              unitTopics(func(flag int32) bool { return flag&unitFlag != 0 }),
	remoting.ReqGetHasUnitSubTopicList:        unitTopics(func(flag int32) bool { return flag&unitSubFlag != 0 }),
	remoting.ReqGetHasUnitSubUnunitTopicList:  unitTopics(func(flag int32) bool { return flag&(unitFlag|unitSubFlag) == unitSubFlag }),
}

// Bits of a topic's sys flag.
const (
	unitFlag    int32 = 1
	unitSubFlag int32 = 2
)

func ok(body any) (answer, error) {
	b, err := remoting.EncodeBody(body)
	return answer{body: b}, err
}

func (n *NameServer) route(c *server.Conn, r *server.Request) (answer, error) {
	topic, err := r.Require("topic")
	if err != nil {
		return answer{}, err
	}
	data, found := n.table.Route(topic, c.Local().Addr())
	if !found {
		why := "no live broker has it. It is created by its first message when auto-creation is on, or with updateTopic"
		if err := meta.CheckTopic(topic); err != nil {
			why = "there can be none: " + err.Error()
		}
		return answer{}, &fault{remoting.RespTopicNotExist, "no route for topic " + clip(topic) + ": " + why}
	}
	if n.cfg.OrderTopics {
		data.OrderTopicConf, _ = n.kv.get(OrderNamespace, topic)
	}
	return ok(data)
}

func clip(s string) string { return remoting.Clip(s, 300) }

func (n *NameServer) clusterInfo(c *server.Conn, _ *server.Request) (answer, error) {
	return ok(n.table.Cluster(c.Local().Addr()))
}

// identity reads the fields that name a broker, copied out of the frame.
func identity(r *server.Request) (cluster, name, addr string, id int64, err error) {
	for _, f := range []struct {
		key string
		to  *string
	}{{"brokerName", &name}, {"brokerAddr", &addr}, {"clusterName", &cluster}} {
		v, err := r.Require(f.key)
		if err != nil {
			return "", "", "", 0, err
		}
		*f.to = strings.Clone(v)
	}
	id, err = r.Int64("brokerId")
	return cluster, name, addr, id, err
}

func (n *NameServer) registerBroker(c *server.Conn, r *server.Request) (answer, error) {
	var reg Registration
	var err error
	if reg.Cluster, reg.Broker, reg.Addr, reg.ID, err = identity(r); err != nil {
		return answer{}, err
	}
	if strings.HasPrefix(reg.Addr, ":") {
		// Filled in per client this would name us, not the broker.
		return answer{}, &fault{remoting.RespInvalidParameter, fmt.Sprintf("field brokerAddr: %q has no host", reg.Addr)}
	}
	sum, err := r.OptInt32("bodyCrc32", 0)
	if err != nil {
		return answer{}, err
	}
	if got := int32(crc32.ChecksumIEEE(r.Body) & 0x7FFFFFFF); sum != 0 && sum != got {
		return answer{}, &fault{remoting.RespSystemError, fmt.Sprintf("crc32 not match: the body has %d, bodyCrc32 says %d", got, sum)}
	}
	timeout, err := r.OptInt64("heartbeatTimeoutMillis", 0)
	if err != nil {
		return answer{}, err
	}
	if timeout > 0 {
		reg.Timeout = time.Duration(min(timeout, int64(time.Hour/time.Millisecond))) * time.Millisecond
	}
	body, err := remoting.DecodeRegisterBody(r.Body)
	if err != nil {
		return answer{}, err
	}
	if body.TopicConfigSerializeWrapper.TopicConfigTable == nil {
		return answer{}, &remoting.FieldError{Field: "topicConfigSerializeWrapper.topicConfigTable", Missing: true}
	}
	reg.HAAddr, reg.Zone = strings.Clone(r.Get("haServerAddr")), strings.Clone(r.Get("__ZONE_NAME"))
	reg.ActingMaster = r.Bool("enableActingMaster", false)
	reg.Version, reg.Topics = body.TopicConfigSerializeWrapper.DataVersion, body.TopicConfigSerializeWrapper.TopicConfigTable
	out, err := n.register(reg, c)
	if err != nil {
		return answer{}, err
	}
	var a answer
	if out.MasterAddr != "" {
		a.ext = []string{"haServerAddr", out.HAAddr, "masterAddr", out.MasterAddr}
	}
	if order := n.kv.namespace(OrderNamespace); order != nil && !out.Ignored {
		if a.body, err = remoting.EncodeBody(remoting.KVTable{Table: order}); err != nil {
			return answer{}, err
		}
	}
	return a, nil
}

func (n *NameServer) unregisterBroker(_ *server.Conn, r *server.Request) (answer, error) {
	cluster, name, addr, id, err := identity(r)
	if err != nil {
		return answer{}, err
	}
	n.Unregister(cluster, name, id, addr)
	return answer{}, nil
}

func (n *NameServer) queryDataVersion(_ *server.Conn, r *server.Request) (answer, error) {
	cluster, _, addr, _, err := identity(r)
	if err != nil {
		return answer{}, err
	}
	var theirs remoting.DataVersion
	if err := remoting.DecodeBody("DataVersion", r.Body, &theirs); err != nil {
		return answer{}, err
	}
	ours, known := n.table.Version(cluster, addr)
	if known && ours == theirs {
		n.table.Alive(cluster, addr, n.cfg.Now())
	}
	a := answer{ext: []string{"changed", fmt.Sprint(!known || ours != theirs)}}
	if known {
		a.body, err = remoting.EncodeBody(ours)
	}
	return a, err
}

func (n *NameServer) heartbeat(_ *server.Conn, r *server.Request) (answer, error) {
	cluster, err := r.Require("clusterName")
	if err != nil {
		return answer{}, err
	}
	addr, err := r.Require("brokerAddr")
	if err != nil {
		return answer{}, err
	}
	n.table.Alive(cluster, addr, n.cfg.Now())
	return answer{}, nil
}

func (n *NameServer) memberGroup(c *server.Conn, r *server.Request) (answer, error) {
	cluster, err := r.Require("clusterName")
	if err != nil {
		return answer{}, err
	}
	name, err := r.Require("brokerName")
	if err != nil {
		return answer{}, err
	}
	return ok(remoting.BrokerMemberGroup{BrokerMemberGroup: n.table.Members(cluster, name, c.Local().Addr())})
}

func (n *NameServer) allTopics(*server.Conn, *server.Request) (answer, error) {
	return ok(remoting.TopicList{TopicList: n.table.Topics(nil)})
}

func (n *NameServer) topicsByCluster(_ *server.Conn, r *server.Request) (answer, error) {
	want, err := r.Require("cluster")
	if err != nil {
		return answer{}, err
	}
	return ok(remoting.TopicList{TopicList: n.table.Topics(func(cluster string, _ remoting.QueueData) bool { return cluster == want })})
}

func unitTopics(keep func(sysFlag int32) bool) func(*NameServer, *server.Conn, *server.Request) (answer, error) {
	return func(n *NameServer, _ *server.Conn, _ *server.Request) (answer, error) {
		return ok(remoting.TopicList{TopicList: n.table.Topics(func(_ string, q remoting.QueueData) bool { return keep(q.TopicSysFlag) })})
	}
}

// systemTopics lists the names of clusters and brokers, which are topics too, and some broker's address.
func (n *NameServer) systemTopics(c *server.Conn, _ *server.Request) (answer, error) {
	info := n.table.Cluster(c.Local().Addr())
	l := remoting.TopicList{TopicList: []string{}}
	for cluster, brokers := range info.ClusterAddrTable {
		l.TopicList = append(append(l.TopicList, cluster), brokers...)
	}
	slices.Sort(l.TopicList)
	for _, name := range l.TopicList {
		for _, addr := range info.BrokerAddrTable[name].BrokerAddrs {
			if l.BrokerAddr == "" || addr < l.BrokerAddr {
				l.BrokerAddr = addr
			}
		}
	}
	return ok(l)
}

func (n *NameServer) deleteTopic(_ *server.Conn, r *server.Request) (answer, error) {
	topic, err := r.Require("topic")
	if err != nil {
		return answer{}, err
	}
	n.table.RemoveTopic(topic, r.Get("clusterName"))
	return answer{}, nil
}

func (n *NameServer) registerTopic(_ *server.Conn, r *server.Request) (answer, error) {
	topic, err := r.Require("topic")
	if err != nil {
		return answer{}, err
	}
	var data remoting.TopicRouteData
	if err := remoting.DecodeBody("TopicRouteData", r.Body, &data); err != nil {
		return answer{}, err
	}
	return answer{}, n.table.SetTopic(strings.Clone(topic), data.QueueDatas)
}

func (n *NameServer) wipeWritePerm(_ *server.Conn, r *server.Request) (answer, error) {
	return n.changePerm(r, "wipeTopicCount", func(p int32) int32 { return p &^ remoting.PermWrite })
}

func (n *NameServer) addWritePerm(_ *server.Conn, r *server.Request) (answer, error) {
	return n.changePerm(r, "addTopicCount", func(int32) int32 { return remoting.PermRead | remoting.PermWrite })
}

func (n *NameServer) changePerm(r *server.Request, count string, change func(int32) int32) (answer, error) {
	name, err := r.Require("brokerName")
	if err != nil {
		return answer{}, err
	}
	return answer{ext: []string{count, fmt.Sprint(n.table.ChangePerm(name, change))}}, nil
}

func (n *NameServer) putKV(_ *server.Conn, r *server.Request) (answer, error) {
	ns, key, err := kvKey(r)
	if err != nil {
		return answer{}, err
	}
	value, found := r.Lookup("value")
	if !found {
		return answer{}, &remoting.FieldError{Field: "value", Missing: true}
	}
	if err := n.kv.put(strings.Clone(ns), strings.Clone(key), strings.Clone(value)); err != nil {
		return answer{}, &fault{remoting.RespSystemError, err.Error()}
	}
	return answer{}, nil
}

func (n *NameServer) getKV(_ *server.Conn, r *server.Request) (answer, error) {
	ns, key, err := kvKey(r)
	if err != nil {
		return answer{}, err
	}
	v, found := n.kv.get(ns, key)
	if !found {
		return answer{}, &fault{remoting.RespQueryNotFound, fmt.Sprintf("no config item, Namespace: %s Key: %s", clip(ns), clip(key))}
	}
	return answer{ext: []string{"value", v}}, nil
}

func (n *NameServer) deleteKV(_ *server.Conn, r *server.Request) (answer, error) {
	ns, key, err := kvKey(r)
	if err != nil {
		return answer{}, err
	}
	return answer{}, n.kv.remove(ns, key)
}

func (n *NameServer) listKV(_ *server.Conn, r *server.Request) (answer, error) {
	ns, err := r.Require("namespace")
	if err != nil {
		return answer{}, err
	}
	table := n.kv.namespace(ns)
	if len(table) == 0 {
		return answer{}, &fault{remoting.RespQueryNotFound, "no config item, Namespace: " + clip(ns)}
	}
	return ok(remoting.KVTable{Table: table})
}

func kvKey(r *server.Request) (ns, key string, err error) {
	if ns, err = r.Require("namespace"); err != nil {
		return "", "", err
	}
	key, err = r.Require("key")
	return ns, key, err
}
