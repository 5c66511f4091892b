package mapping

import "github.com/fusionmq/fusionmq/notify/wire"

// Names of properties in the record. The part behind PrefixField is ours; anyone who sets such a property on a RocketMQ
// message means the Notify field.
const (
	PrefixHeader = "__h." // and a name that RocketMQ reserves: a Notify header of that name
	PrefixEmpty  = "__e." // and a header's name: a header whose value is the empty text; RocketMQ cannot store one
	PrefixField  = "__n." // and the name of a field of MessageHeader

	propTags   = "TAGS"
	propKeys   = "KEYS"
	propUniq   = "UNIQ_KEY"
	propPGroup = "PGROUP"

	propTarget = PrefixField + "target"
)

// scalar is a field of MessageHeader that travels as one property.
type scalar struct {
	field wire.Field
	name  string // of the property
}

// scalars are those fields in the order in which they are written. A field that is absent, or has the value that a
// reader assumes (see Row), makes no property.
var scalars = [...]scalar{
	{wire.FieldFlag, PrefixField + "flag"},
	{wire.FieldGroup, PrefixField + "group"},
	{wire.FieldPriority, PrefixField + "priority"},
	{wire.FieldVersion, PrefixField + "version"},
	{wire.FieldTTL, PrefixField + "ttl"},
	{wire.FieldDLQTime, PrefixField + "dlqTime"},
	{wire.FieldPostTimeout, PrefixField + "postTimeout"},
	{wire.FieldPostDelay, PrefixField + "postDelay"},
	{wire.FieldPublisherHost, PrefixField + "host"},
	{wire.FieldTargetGroup, propTarget},
	{wire.FieldReplyToTopic, PrefixField + "replyTopic"},
	{wire.FieldReplyToType, PrefixField + "replyType"},
	{wire.FieldReplyID, PrefixField + "replyId"},
	{wire.FieldReplyWhenDelivery, PrefixField + "replyWhen"},
}

// scalarName is the property of a field.
func scalarName(f wire.Field) string {
	for i := range scalars {
		if scalars[i].field == f {
			return scalars[i].name
		}
	}
	return ""
}

// DefaultPriority is what a message without a priority has.
const DefaultPriority = 4

// Row is one line of docs/mapping.md: where a field of a Notify message is in a RocketMQ record, and how it comes back.
type Row struct {
	Notify string // the field
	Record string // where the record has it
	Back   string // what a Notify subscriber gets; for a RocketMQ producer's message too where that differs
}

// Table is the whole mapping. docs/mapping.md holds the same rows; a test compares them.
func Table() []Row {
	row := func(f wire.Field, record, back string) Row { return Row{wire.FieldName(f), record, back} }
	prop := func(f wire.Field, extra, back string) Row {
		return Row{wire.FieldName(f), "property `" + scalarName(f) + "`" + extra, back}
	}
	return []Row{
		row(wire.FieldID, "properties `UNIQ_KEY` and first of `KEYS`: 32 lower-case hex digits",
			"the bytes. From RocketMQ: `UNIQ_KEY` of 32 hex digits in any case; another form is kept in the record and the id is the MD5 of its text; without one the offset id takes its place"),
		prop(wire.FieldFlag, " without bit 3 when that is not 0; bit 3 (compressed) is sysFlag 0x1", "the same bits. From RocketMQ: kind 0, bit 3 from sysFlag"),
		row(wire.FieldTopic, "TOPIC", "the same"),
		row(wire.FieldType, "property `TAGS`", "the same; empty without a tag"),
		prop(wire.FieldGroup, ", with `PGROUP` = the name as RocketMQ has it (percent-encoded); the property only when that is another name", "the sender's group. From RocketMQ: `PGROUP`, else empty"),
		row(wire.FieldCommitted, "the transaction bits of sysFlag", "false for a half message, else true"),
		row(wire.FieldBornTime, "BORNTIMESTAMP", "the same"),
		prop(wire.FieldPriority, " when it is not 4", "the same, unclamped; 4 when absent"),
		row(wire.FieldDeliveryCount, "not stored: what a sender puts there is ignored", "attempt number of this target, 1 at first"),
		prop(wire.FieldVersion, "", "the same"),
		prop(wire.FieldTTL, "", "the same"),
		prop(wire.FieldDLQTime, "", "the same"),
		prop(wire.FieldPostTimeout, "", "the same"),
		prop(wire.FieldPostDelay, "", "the same"),
		row(wire.FieldCreated, "STORETIMESTAMP; what a sender puts there is ignored", "the store time"),
		row(wire.FieldLastDelivery, "not stored: what a sender puts there is ignored", "when the attempt before failed, from the second on"),
		prop(wire.FieldPublisherHost, "; empty is absent", "the same"),
		prop(wire.FieldTargetGroup, ": restricts the exchange; empty is absent", "in a delivery: the group it is for"),
		row(wire.FieldProperties, "a property each; no value is no property, the last of equal names wins", "the same, in the order stored"),
		{"header with a name RocketMQ reserves", "property `" + PrefixHeader + "NAME`", "NAME. It never acts"},
		{"header with an empty value", "property `" + PrefixEmpty + "NAME` = 1, NAME as above", "NAME with an empty value"},
		{"`__unit` `__shadow` `__grey` `__trace` `__route` `__t.NAME`", "the same property", "the same"},
		{"`__ctype` lz4, zstd of a compressed body", "sysFlag 0x100, 0x200 beside 0x1; zlib is no bit", "`__ctype`; absent for zlib. Beside an uncompressed body it is an ordinary property"},
		{"`__keys` (never from a client)", "property `KEYS` of RocketMQ producers", "`__keys`, unless `KEYS` is just the id"},
		prop(wire.FieldReplyToTopic, "; empty is absent", "the same"),
		prop(wire.FieldReplyToType, "; empty is absent", "the same"),
		prop(wire.FieldReplyID, "", "the same"),
		prop(wire.FieldReplyWhenDelivery, "; empty is absent", "the same"),
		{"body", "BODY, byte for byte, compressed or not", "the same"},
		{"-", "other properties that RocketMQ reserves (below)", "not shown to Notify subscribers; the record keeps them"},
	}
}
