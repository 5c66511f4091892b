package wire

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Keys of Metadata.Build and MetadataAnswer.Info that carry the negotiation.
const (
	KeyFeatures = "fusion.features" // comma-separated features: offered by the client, accepted by the server
	KeySoftware = "fusion.software" // name/version, for people
)

// Feature is one agreement beyond NOTIFY_V1. A feature is in force for a connection when the client offered it in its
// metadata and the server's answer lists it; from the answer on, and until a later metadata frame is answered.
type Feature uint8

const (
	FeatureBatch       Feature = 1 << iota // DELIVER_BATCH and ACK_BATCH
	FeatureCredit                          // CREDIT: the server pushes nothing to a group before it has credit
	FeatureUnsubscribe                     // UNSUBSCRIBE
	FeatureDurability                      // MessageAck.Durability in the answers to sends
)

// AllFeatures is every feature of this version.
const AllFeatures = FeatureBatch | FeatureCredit | FeatureUnsubscribe | FeatureDurability

var featureNames = [...]struct {
	bit  Feature
	name string
}{{FeatureBatch, "batch"}, {FeatureCredit, "credit"}, {FeatureUnsubscribe, "unsubscribe"}, {FeatureDurability, "durability"}}

// ParseFeatures reads a comma-separated list; names it does not know are ignored, so that either side can be newer.
func ParseFeatures(s string) Feature {
	var out Feature
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		for _, f := range featureNames {
			if f.name == name {
				out |= f.bit
			}
		}
	}
	return out
}

// String is the list that ParseFeatures reads.
func (f Feature) String() string {
	var names []string
	for _, n := range featureNames {
		if f&n.bit != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ",")
}

// Has tells whether all of x are in f.
func (f Feature) Has(x Feature) bool { return f&x == x }

// ClientInfo is one group that a client speaks for. Nil slices are absent fields.
type ClientInfo struct {
	Group, HostName, Name, Description, AppName []byte
}

// Metadata is what a client says about itself right after connecting (MetaDataBody). A later one replaces it.
type Metadata struct {
	Clients []ClientInfo
	Build   []Property // clientBuildInfo
}

// Bounds of one Metadata: what is decoded takes many times the bytes that it came in.
const (
	MaxMetadataGroups = 1000 // ClientInfo
	MaxMetadataBuild  = 1000 // entries of clientBuildInfo
)

var (
	metadataSchema = schema{name: "MetaDataBody", fields: []fieldSpec{1: {"clientInfoSet", protowire.BytesType}, 2: {"clientBuildInfo", protowire.BytesType}}}
	clientSchema   = schema{
		name: "ClientInfo",
		fields: []fieldSpec{1: {"group", protowire.BytesType}, 2: {"hostName", protowire.BytesType}, 3: {"name", protowire.BytesType},
			4: {"description", protowire.BytesType}, 5: {"appName", protowire.BytesType}},
		required: 1 << 1,
	}
)

// Decode replaces m with the message in b.
func (m *Metadata) Decode(b []byte) error {
	m.Clients, m.Build = m.Clients[:0], m.Build[:0]
	var seen uint32
	return metadataSchema.each(b, &seen, func(f protoField) error {
		if f.num == 2 {
			if len(m.Build) == MaxMetadataBuild {
				return &HeaderError{Message: metadataSchema.name, Field: "clientBuildInfo", Reason: fmt.Sprintf("more than %d entries", MaxMetadataBuild)}
			}
			p, err := decodeEntry(f.b)
			m.Build = append(m.Build, p)
			return err
		}
		if len(m.Clients) == MaxMetadataGroups {
			return &HeaderError{Message: metadataSchema.name, Field: "clientInfoSet", Reason: fmt.Sprintf("more than %d groups", MaxMetadataGroups)}
		}
		var c ClientInfo
		var got uint32
		err := clientSchema.each(f.b, &got, func(f protoField) error {
			*c.field(f.num) = present(f.b)
			return nil
		})
		m.Clients = append(m.Clients, c)
		if err != nil {
			return err
		}
		return clientSchema.missing(got)
	})
}

func (c *ClientInfo) field(num protowire.Number) *[]byte {
	return [...]*[]byte{&c.Group, &c.HostName, &c.Name, &c.Description, &c.AppName}[num-1]
}

// Append appends the encoded message.
func (m *Metadata) Append(dst []byte) []byte {
	for i := range m.Clients {
		c := &m.Clients[i]
		n := sizeBytesField(1, len(c.Group))
		for num := protowire.Number(2); num <= 5; num++ {
			if v := *c.field(num); v != nil {
				n += sizeBytesField(num, len(v))
			}
		}
		dst = protowire.AppendTag(dst, 1, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(n))
		dst = appendBytesField(dst, 1, c.Group)
		for num := protowire.Number(2); num <= 5; num++ {
			if v := *c.field(num); v != nil {
				dst = appendBytesField(dst, num, v)
			}
		}
	}
	return appendEntries(dst, 2, m.Build)
}

// Features is what the client offers.
func (m *Metadata) Features() Feature { return features(m.Build) }

// MetadataAnswer is the header of the NO_ERROR answer to a client that offered features; others get no header.
type MetadataAnswer struct {
	Info []Property // KeyFeatures and what else the server tells
}

var answerSchema = schema{name: "MetaDataAnswer", fields: []fieldSpec{1: {"serverInfo", protowire.BytesType}}}

// Decode replaces m with the message in b.
func (m *MetadataAnswer) Decode(b []byte) error {
	m.Info = m.Info[:0]
	var seen uint32
	return answerSchema.each(b, &seen, func(f protoField) error {
		p, err := decodeEntry(f.b)
		m.Info = append(m.Info, p)
		return err
	})
}

// Append appends the encoded message.
func (m *MetadataAnswer) Append(dst []byte) []byte { return appendEntries(dst, 1, m.Info) }

// Features is what the server accepted.
func (m *MetadataAnswer) Features() Feature { return features(m.Info) }

// FeatureProperty is the entry that offers or accepts f.
func FeatureProperty(f Feature) Property {
	return Property{Key: []byte(KeyFeatures), Value: []byte(f.String()), HasValue: true}
}

func features(ps []Property) Feature {
	for i := len(ps) - 1; i >= 0; i-- { // the last one wins
		if string(ps[i].Key) == KeyFeatures {
			return ParseFeatures(string(ps[i].Value))
		}
	}
	return 0
}

func appendEntries(dst []byte, num protowire.Number, ps []Property) []byte {
	for i := range ps {
		dst = protowire.AppendTag(dst, num, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(entrySize(&ps[i])))
		dst = appendEntry(dst, &ps[i])
	}
	return dst
}
