package remoting

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/internal/vectors"
)

func load(t testing.TB) []*vectors.Frame {
	t.Helper()
	fs, err := vectors.Load("testdata", "*")
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// fields is Ext as a map, last value first served.
func fields(h *Header) map[string]string {
	m := map[string]string{}
	for _, f := range h.Ext {
		m[f.Key] = f.Value
	}
	return m
}

func same(a, b *Header) bool {
	return a.Code == b.Code && a.Language == b.Language && a.Version == b.Version && a.Opaque == b.Opaque && a.Flag == b.Flag &&
		a.Remark == b.Remark && maps.Equal(fields(a), fields(b))
}

func TestEveryRecordedFrameDecodesToItsHeaderAndEncodesBack(t *testing.T) {
	all := load(t)
	if len(all) != 3421 {
		t.Errorf("%d frames, want the 3421 that were recorded", len(all))
	}
	var h, again Header
	for _, f := range all {
		body, err := h.Decode(f.Bytes)
		if err != nil {
			t.Fatalf("%v: %v", f, err)
		}
		want := f.Header
		if h.Code != want.Code || h.Language.String() != want.Language || h.Version != want.Version || h.Opaque != want.Opaque || h.Flag != want.Flag ||
			h.Remark != want.Remark || h.Serialize.String() != f.Serialize || len(body) != f.BodyLen || h.Response() != f.Response || h.Oneway() != f.Oneway {
			t.Errorf("%v: got %+v and %d bytes, want %+v and %d", f, h, len(body), want, f.BodyLen)
		}
		if got := fields(&h); !maps.Equal(got, want.ExtFields) && len(got)+len(want.ExtFields) > 0 {
			t.Errorf("%v: ext fields %v, want %v", f, got, want.ExtFields)
		}

		var e Encoder
		if err := e.Frame(&h, body); err != nil {
			t.Fatalf("%v: encode: %v", f, err)
		}
		if h.Serialize == Binary && !bytes.Equal(e.Bytes(), f.Bytes) {
			t.Errorf("%v: binary frame changed\n got %x\nwant %x", f, e.Bytes(), f.Bytes)
		}
		body2, err := again.Decode(e.Bytes())
		if err != nil || !same(&h, &again) || !bytes.Equal(body, body2) {
			t.Errorf("%v: after encoding %+v (%v), want %+v", f, again, err, h)
		}
	}
}

func TestEveryRecordedSendAndPullReadsIntoItsTypedHeader(t *testing.T) {
	var h Header
	sends, pulls, results, incomplete := 0, 0, 0, 0
	for _, f := range load(t) {
		if _, err := h.Decode(f.Bytes); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case !f.Response && isSend(f.Code):
			var s SendHeader
			sends++
			if err = s.Read(&h); err == nil {
				ext := f.Header.ExtFields
				if s.Topic != or(ext["b"], ext["topic"]) || s.ProducerGroup != or(ext["a"], ext["producerGroup"]) || s.Properties != or(ext["i"], ext["properties"]) {
					t.Errorf("%v: %+v from %v", f, s, ext)
				}
				roundTripSend(t, f, s)
			}
		case !f.Response && (f.Code == ReqPullMessage || f.Code == ReqLitePullMessage):
			var p, q PullHeader
			pulls++
			if err = p.Read(&h); err == nil {
				var e Encoder
				e.Begin(Head{Code: f.Code})
				p.Write(&e)
				_ = e.End(nil)
				var h2 Header
				if _, err := h2.Decode(e.Bytes()); err != nil {
					t.Fatal(err)
				}
				if err := q.Read(&h2); err != nil {
					t.Fatal(err)
				}
				q.RequestSource = p.RequestSource // servers read it, our client does not send it
				if p != q {
					t.Errorf("%v: %+v came back as %+v", f, p, q)
				}
			}
		case f.Response && isSend(f.RequestCode) && f.Code == RespSuccess:
			results++
			var r SendResult
			err = r.Read(&h)
		case f.Response && f.RequestCode == ReqPullMessage && (f.Code == 0 || f.Code >= 19 && f.Code <= 21):
			results++
			var r PullResult
			err = r.Read(&h)
		}
		if err != nil && !f.Response && (strings.Contains(f.Step, "raw") || len(f.Header.ExtFields) == 0) { // made by hand
			incomplete++
		} else if err != nil {
			t.Errorf("%v: %s: %v", f, RequestName(f.Code), err)
		}
	}
	if sends < 150 || pulls < 200 || results < 250 {
		t.Errorf("%d sends, %d pulls, %d results: the vectors have more", sends, pulls, results)
	}
	if incomplete != 14 { // requests made by hand with fields left out on purpose
		t.Errorf("%d incomplete requests refused, want 14", incomplete)
	}
}

func isSend(code int32) bool {
	switch code {
	case ReqSendMessage, ReqSendMessageV2, ReqSendBatchMessage, ReqSendReplyMessage, ReqSendReplyMessageV2:
		return true
	}
	return false
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func roundTripSend(t *testing.T, f *vectors.Frame, s SendHeader) {
	t.Helper()
	for _, v2 := range []bool{false, true} {
		for _, ser := range []Serialize{JSON, Binary} {
			var e Encoder
			var h Header
			var got SendHeader
			e.Begin(Head{Code: f.Code, Serialize: ser})
			s.Write(&e, v2)
			if err := e.End(nil); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Decode(e.Bytes()); err != nil {
				t.Fatal(err)
			}
			if err := got.Read(&h); err != nil || got != s {
				t.Errorf("%v: v2 %v %v: got %+v, %v, want %+v", f, v2, ser, got, err, s)
			}
		}
	}
}

func TestEveryRecordedBodyOfATypeWeKnowDecodes(t *testing.T) {
	seen := map[string]int{}
	for _, f := range load(t) {
		var h Header
		body, err := h.Decode(f.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if len(body) == 0 || f.Response && f.Code != RespSuccess {
			continue
		}
		code := f.Code
		if f.Response {
			code = -f.RequestCode
		}
		var v any
		switch code {
		case ReqHeartBeat:
			d, err := DecodeHeartbeat(body)
			if err != nil {
				t.Errorf("%v: %v", f, err)
				continue
			}
			seen["heartbeat"]++
			for _, c := range d.ConsumerDataSet {
				if c.ConsumeType == "" || c.MessageModel == "" || c.ConsumeFromWhere == "" {
					t.Errorf("%v: %+v", f, c)
				}
			}
			continue
		case ReqRegisterBroker:
			d, err := DecodeRegisterBody(body)
			if err != nil || len(d.TopicConfigSerializeWrapper.TopicConfigTable) == 0 || d.TopicConfigSerializeWrapper.DataVersion.Timestamp == 0 {
				t.Errorf("%v: %+v, %v", f, d, err)
				continue
			}
			seen["registration"]++
			for name, c := range d.TopicConfigSerializeWrapper.TopicConfigTable {
				if c.TopicName != name || c.ReadQueueNums == 0 || c.Perm == 0 {
					t.Errorf("%v: %s: %+v", f, name, c)
				}
			}
			continue
		case -ReqGetRouteInfoByTopic:
			r := new(TopicRouteData)
			if err := DecodeBody("route", body, r); err != nil || len(r.BrokerDatas) == 0 || r.BrokerDatas[0].BrokerAddrs[0] == "" || r.QueueDatas[0].ReadQueueNums == 0 {
				t.Errorf("%v: %+v, %v", f, r, err)
			}
			seen["route"]++
			continue
		case -ReqGetBrokerClusterInfo:
			v = new(ClusterInfo)
		case -ReqGetConsumerConnectionList:
			v = new(ConsumerConnection)
		case -ReqGetProducerConnectionList:
			v = new(ProducerConnection)
		case -ReqGetAllSubscriptionGroupConfig:
			v = new(SubscriptionGroupTable)
		case -ReqGetAllTopicConfig:
			v = new(TopicConfigTable)
		case -ReqGetTopicConfig:
			v = new(TopicConfig)
		case -ReqGetSubscriptionGroupConfig, ReqUpdateAndCreateSubscriptionGroup:
			v = new(SubscriptionGroupConfig)
		case -ReqGetAllTopicListFromNameServer, -ReqGetTopicsByCluster, -ReqGetSystemTopicListFromNS:
			v = new(TopicList)
		case -ReqGetConsumerListByGroup:
			v = new(ConsumerIDs)
		case -ReqGetBrokerRuntimeInfo, -ReqGetKVListByNamespace:
			v = new(KVTable)
		case -ReqGetBrokerMemberGroup:
			v = new(BrokerMemberGroup)
		case ReqUpdateAndCreateTopicList:
			v = new(TopicConfigList)
		case ReqLockBatchMQ, ReqUnlockBatchMQ:
			v = new(LockBatchRequest)
		case -ReqLockBatchMQ:
			v = new(LockBatchResult)
		case ReqCheckClientConfig:
			v = new(CheckClientConfig)
		case ReqQueryDataVersion:
			v = new(DataVersion)
		default:
			continue
		}
		if err := DecodeBody(RequestName(f.Code), body, v); err != nil {
			t.Errorf("%v: %T: %v", f, v, err)
			continue
		}
		seen["other"]++
		// What we write is read back the same, by us and by a strict reader.
		text, err := EncodeBody(v)
		if err != nil {
			t.Fatal(err)
		}
		again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := json.Unmarshal(text, again); err != nil {
			t.Errorf("%v: a strict reader: %v in %s", f, err, text)
		}
		if text2, err := EncodeBody(again); err != nil || !bytes.Equal(text, text2) {
			t.Errorf("%v: %s\n came back as %s, %v", f, text, text2, err)
		}
	}
	for what, least := range map[string]int{"heartbeat": 70, "registration": 15, "route": 100, "other": 150} {
		if seen[what] < least {
			t.Errorf("%d bodies of kind %s, want at least %d", seen[what], what, least)
		}
	}
}
