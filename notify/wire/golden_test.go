package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden is a row of testdata/frames.jsonl, which an independent codec wrote.
type golden struct {
	Name, Note string
	Header     map[string]any
	FrameHex   string `json:"frame_hex"`
	frame      []byte
}

func goldenFrames(t testing.TB) []golden {
	t.Helper()
	f, err := os.Open("testdata/frames.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []golden
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var g golden
		dec := json.NewDecoder(bytes.NewReader(sc.Bytes()))
		dec.UseNumber()
		if err := dec.Decode(&g); err != nil {
			t.Fatal(err)
		}
		if g.frame, err = hex.DecodeString(g.FrameHex); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, g)
	}
	if len(rows) < 30 {
		t.Fatalf("only %d golden frames", len(rows))
	}
	return rows
}

func TestGoldenFramesDecodeAndEncodeToTheSameBytes(t *testing.T) {
	for _, g := range goldenFrames(t) {
		t.Run(g.Name, func(t *testing.T) {
			f, n, err := Parse(g.frame)
			switch {
			case strings.HasPrefix(g.Note, "wait"):
				if !errors.Is(err, ErrShort) {
					t.Fatalf("Parse = %v, want ErrShort", err)
				}
				return
			case g.Note == "close":
				if err == nil || ActionFor(err) != Close {
					t.Fatalf("Parse = %v, want an error that closes", err)
				}
				return
			case err != nil || n != len(g.frame):
				t.Fatalf("Parse = %d, %v, want %d, nil", n, err, len(g.frame))
			}
			got, header, body := decodeAny(t, f)
			if diff := cmp.Diff(g.Header, got); diff != "" {
				t.Errorf("decoded header (-want +got):\n%s", diff)
			}
			var again []byte
			if f.Response {
				again, err = AppendResponse(nil, f.Opcode, f.Status, f.Opaque, header, body)
			} else {
				again, err = AppendRequest(nil, f.Opcode, f.Opaque, header, body)
			}
			if err != nil || !bytes.Equal(again, g.frame) {
				t.Errorf("encoded again = %x, %v\nwant %x", again, err, g.frame)
			}
		})
	}
}

// decodeAny decodes whatever the frame carries to the form of the golden file, and encodes it again.
func decodeAny(t *testing.T, f Frame) (fields map[string]any, header, body []byte) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m := object{}
	switch {
	case f.Response && f.Status != NoError:
		text, ok, err := ErrorText(f.Header)
		must(err)
		if ok {
			m["errorMessage"] = string(text)
			header = AppendErrorText(nil, string(text))
		}
	case f.Response && (f.Opcode == OpSend || f.Opcode == OpDeliver):
		var a MessageAck
		must(a.Decode(f.Header))
		m = ackObject(&a)
		header = a.Append(nil)
	case f.Response && f.Opcode == OpCheck:
		var a CheckAck
		must(a.Decode(f.Header))
		m.bytes("messageId", a.MessageID, true)
		m.num("result", int64(a.Result), a.HasResult)
		m.bytes("serverData", a.ServerData, a.HasServerData)
		m.num("postDelayTime", int64(a.PostDelay), a.HasPostDelay)
		header = a.Append(nil)
	case f.Response && f.Opcode == OpSendList:
		acks, err := DecodeMessageListAck(nil, f.Header)
		must(err)
		var list []any
		for i := range acks {
			list = append(list, map[string]any(ackObject(&acks[i])))
			header = AppendListAck(header, &acks[i])
		}
		m["ackList"] = list
	case f.Response:
		if len(f.Header) != 0 {
			t.Fatalf("unexpected header in %v", f.Opcode)
		}
	case f.Opcode == OpSend || f.Opcode == OpDeliver:
		var h MessageHeader
		must(h.Decode(f.Header))
		m = headerObject(&h)
		header, body = h.Append(nil), f.Body
		if h.Size() != len(header) {
			t.Errorf("Size = %d, want %d", h.Size(), len(header))
		}
	case f.Opcode == OpCheck:
		var c Check
		must(c.Decode(f.Header))
		m["messageHeader"] = map[string]any(headerObject(&c.Header))
		m.bytes("serverData", c.ServerData, c.HasServerData)
		header, body = c.Append(nil), f.Body
	case f.Opcode == OpMetadata:
		var md Metadata
		must(md.Decode(f.Body))
		var clients, build []any
		for _, c := range md.Clients {
			o := object{}
			for i, name := range []string{"group", "hostName", "name", "description", "appName"} {
				if v := *c.field(Field(i + 1)); v != nil {
					o[name] = string(v)
				}
			}
			clients = append(clients, map[string]any(o))
		}
		build = propertyList(md.Build)
		m["clientInfoSet"], m["clientBuildInfo"] = clients, build
		body = md.Append(nil)
	case f.Opcode == OpCommitRollback:
		var c CommitRollback
		must(c.Decode(f.Header))
		m.bytes("messageId", c.MessageID, true)
		m["committed"] = c.Committed
		m.bytes("serverData", c.ServerData, c.HasServerData)
		m.num("postDelayTime", int64(c.PostDelay), c.HasPostDelay)
		m.num("status", int64(c.Status), c.HasStatus)
		header = c.Append(nil)
		if _, err := c.Outcome(); (err != nil) != strings.Contains(t.Name(), "contradiction") {
			t.Errorf("Outcome: %v", err)
		}
	case f.Opcode == OpSubscribe || f.Opcode == OpCloseSubscription || f.Opcode == OpOpenSubscription:
		var s Subscription
		must(s.Decode(f.Header))
		m["binding"] = string(s.Binding)
		header = s.Append(nil)
		b, err := ParseBinding(s.Binding)
		must(err)
		if again, err := ParseBinding(b.Append(nil)); err != nil || again != b {
			t.Errorf("binding again = %v, %v, want %v", again, err, b)
		}
	case f.Opcode == OpSendList:
		list, err := DecodeMessageList(nil, f.Body)
		must(err)
		var out []any
		for i := range list {
			o := object{"messageHeader": map[string]any(headerObject(&list[i].Header))}
			o.bytes("body", list[i].Body, true)
			out = append(out, map[string]any(o))
			body = AppendListMessage(body, &list[i].Header, list[i].Body)
		}
		m["messageList"] = out
	default:
		header, body = f.Header, f.Body
	}
	return m, header, body
}

type object map[string]any

func (o object) bytes(name string, v []byte, has bool) {
	if has {
		o[name] = map[string]any{"hex": hex.EncodeToString(v)}
	}
}

func (o object) num(name string, v int64, has bool) {
	if has {
		text, _ := json.Marshal(v)
		o[name] = json.Number(text)
	}
}

func ackObject(a *MessageAck) object {
	o := object{}
	o.bytes("serverData", a.ServerData, a.ServerData != nil)
	o.bytes("messageId", a.MessageID, a.MessageID != nil)
	return o
}

func propertyList(ps []Property) []any {
	var out []any
	for _, p := range ps {
		e := map[string]any{"key": string(p.Key)}
		if p.HasValue {
			e["value"] = string(p.Value)
		}
		out = append(out, e)
	}
	return out
}

func headerObject(h *MessageHeader) object {
	o := object{"topic": string(h.Topic), "messageType": string(h.Type), "groupId": string(h.Group), "committed": h.Committed}
	o.bytes("id", h.ID, true)
	o.num("flag", int64(h.Flag), true)
	o.num("bornTime", int64(h.BornTime), true)
	o.num("priority", int64(h.Priority), true)
	for f := FieldDeliveryCount; f <= FieldReplyWhenDelivery; f++ {
		switch f {
		case FieldProperties:
		case FieldPublisherHost, FieldTargetGroup, FieldReplyToTopic, FieldReplyToType, FieldReplyWhenDelivery:
			if h.Set.Has(f) {
				o[FieldName(f)] = string(h.optionalBytes(f))
			}
		default:
			o.num(FieldName(f), int64(h.optionalNumber(f)), h.Set.Has(f))
		}
	}
	if len(h.Properties) > 0 {
		o["userDefinedProperties"] = propertyList(h.Properties)
	}
	return o
}
