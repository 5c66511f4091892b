package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
)

// readJSON reads the one JSON object of a request into the struct that v points to. Whatever could be meant another way than it is taken is
// refused with the name of the member: one that is unknown, also by its case, that comes twice, that is null where null says nothing, or whose
// type is wrong; and anything behind the object.
func readJSON(r *http.Request, v any) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return &Problem{Status: http.StatusUnsupportedMediaType, Field: "Content-Type", Value: r.Header.Get("Content-Type"), Limit: "application/json",
			Detail: "send the body as application/json"}
	}
	b, err := io.ReadAll(r.Body)
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return &Problem{Status: http.StatusRequestEntityTooLarge, Field: "body", Limit: fmt.Sprint(maxBody), Detail: fmt.Sprintf("the body has more than %d bytes", maxBody)}
	case err != nil:
		return badBody(err.Error())
	}
	return readStruct(b, reflect.ValueOf(v).Elem())
}

func badBody(why string) error {
	return &Problem{Status: http.StatusBadRequest, Field: "body", Limit: "one JSON object", Detail: "the body is not the JSON object that is wanted: " + why}
}

func badMember(name, value, want string) error {
	if len(value) > 64 {
		value = strings.ToValidUTF8(value[:61], "") + "..."
	}
	return &Problem{Status: http.StatusBadRequest, Field: name, Value: value, Limit: want, Detail: fmt.Sprintf("%s is %s; want %s", name, value, want)}
}

// readStruct sets the fields of a struct that the object in b names. The tag null of a field is the value, as JSON, that null stands for.
func readStruct(b []byte, to reflect.Value) error {
	known := map[string]reflect.StructField{}
	var names []string
	for f := range fields(to.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = f
		names = append(names, name)
	}
	return eachMember(b, "", func(name string, value []byte) error {
		f, ok := known[name]
		if !ok {
			want := "no members"
			if len(names) > 0 {
				want = "one of " + strings.Join(names, ", ")
			}
			return &Problem{Status: http.StatusBadRequest, Field: name, Limit: want, Detail: fmt.Sprintf("the body has the unknown field %q; want %s", name, want)}
		}
		if string(value) == "null" {
			stands, ok := f.Tag.Lookup("null")
			if !ok {
				return badMember(name, "null", wanted(f.Type)+", or no "+name+" at all")
			}
			value = []byte(stands)
		}
		if f.Type.Kind() == reflect.Map {
			return readMap(value, name, to.FieldByIndex(f.Index))
		}
		return readValue(value, name, to.FieldByIndex(f.Index))
	})
}

// readMap fills a map, whose values may be null when they are pointers.
func readMap(b []byte, name string, to reflect.Value) error {
	if len(b) == 0 || b[0] != '{' {
		return badMember(name, string(b), wanted(to.Type()))
	}
	m := reflect.MakeMap(to.Type())
	to.Set(m)
	return eachMember(b, name+".", func(key string, value []byte) error {
		v := reflect.New(m.Type().Elem()).Elem()
		if string(value) == "null" && v.Kind() != reflect.Pointer {
			return badMember(name+"."+key, "null", wanted(v.Type()))
		}
		if err := readValue(value, name+"."+key, v); err != nil {
			return err
		}
		m.SetMapIndex(reflect.ValueOf(key), v)
		return nil
	})
}

func readValue(b []byte, name string, to reflect.Value) error {
	if err := json.Unmarshal(b, to.Addr().Interface()); err != nil {
		return badMember(name, string(b), wanted(to.Type()))
	}
	return nil
}

// wanted names a type to who writes JSON.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Map:
		return "an object"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Int32:
		return "a whole number of at most 2147483647"
	}
	return "a whole number"
}

// eachMember calls member for each member of the object in b, in their order, with its value without the space around it. prefix is of the
// names in what it returns.
func eachMember(b []byte, prefix string, member func(name string, value []byte) error) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if first, err := dec.Token(); err != nil {
		return badBody(bodyError(err))
	} else if first != json.Delim('{') {
		return badBody("it is none")
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return badBody(bodyError(err))
		}
		name := token.(string) // a name is the only token that can be here
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return badBody(bodyError(err))
		}
		if seen[name] {
			return &Problem{Status: http.StatusBadRequest, Field: prefix + name, Limit: "once", Detail: fmt.Sprintf("%s%s is there twice; want it once", prefix, name)}
		}
		seen[name] = true
		if err := member(name, bytes.TrimSpace(value)); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return badBody(bodyError(err))
	}
	if _, err := dec.Token(); err != io.EOF {
		return badBody("there is more behind the object")
	}
	return nil
}

func bodyError(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
