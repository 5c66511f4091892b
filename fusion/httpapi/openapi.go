package httpapi

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
)

type object = map[string]any

// openAPI describes the routes in OpenAPI 3.1. Schemas come from the Go types: the json tag names a property, the doc tag
// describes it, and what has no omitempty is always there.
func openAPI(routes []route, version string) []byte {
	s := schemas{}
	paths := object{}
	problem := s.of(reflect.TypeFor[Problem]())
	for _, r := range routes {
		op := object{"operationId": r.id, "summary": r.summary}
		var params []object
		for _, part := range strings.Split(r.path, "/") {
			if strings.HasPrefix(part, "{") {
				params = append(params, object{"name": strings.Trim(part, "{}"), "in": "path", "required": true, "schema": object{"type": "string"}})
			}
		}
		if r.query != nil {
			for f := range fields(r.query) {
				params = append(params, object{"name": f.Tag.Get("query"), "in": "query", "description": f.Tag.Get("doc"), "schema": s.of(f.Type)})
			}
		}
		if params != nil {
			op["parameters"] = params
		}
		if r.body != nil {
			op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": s.of(r.body)}}}
		}
		responses := object{strconv.Itoa(r.code): object{"description": http.StatusText(r.code), "content": object{"application/json": object{"schema": s.of(r.out)}}}}
		for _, code := range append([]int{http.StatusInternalServerError}, r.problems...) {
			responses[strconv.Itoa(code)] = object{"description": http.StatusText(code), "content": object{"application/problem+json": object{"schema": problem}}}
		}
		op["responses"] = responses
		item, _ := paths[r.path].(object)
		if item == nil {
			item = object{}
			paths[r.path] = item
		}
		item[strings.ToLower(r.method)] = op
	}
	doc := object{
		"openapi": "3.1.0",
		"info": object{"title": "FusionMQ broker administration", "version": version,
			"description": "Each broker serves this about itself. Errors are problem+json (RFC 9457). Changing requests must be application/json: one object, each member once and known, null only where a schema has it."},
		"paths":      paths,
		"components": object{"schemas": s},
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		panic("httpapi: " + err.Error()) // maps of texts and numbers can be written
	}
	return append(b, '\n')
}

// schemas are the named ones so far.
type schemas map[string]object

// of gives the schema of a type; structs are named and referred to.
func (s schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem())
	case t.Kind() == reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case t.Kind() == reflect.Map:
		values := s.of(t.Elem())
		if t.Elem().Kind() == reflect.Pointer {
			values = nullable(values)
		}
		return object{"type": "object", "additionalProperties": values}
	case t.Kind() == reflect.Struct:
		if _, ok := s[t.Name()]; !ok {
			s[t.Name()] = nil // taken, in case the type holds itself
			s[t.Name()] = s.structure(t)
		}
		return object{"$ref": "#/components/schemas/" + t.Name()}
	case t.Kind() == reflect.String:
		return object{"type": "string"}
	case t.Kind() == reflect.Bool:
		return object{"type": "boolean"}
	case t.Kind() == reflect.Int32:
		return object{"type": "integer", "format": "int32"}
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	default:
		panic("httpapi: no schema for " + t.String())
	}
}

func (s schemas) structure(t reflect.Type) object {
	props, required := object{}, []string{}
	for f := range fields(t) {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		schema := s.of(f.Type)
		if _, ok := f.Tag.Lookup("null"); ok {
			schema = nullable(schema)
		}
		schema["description"] = f.Tag.Get("doc")
		props[name] = schema
		if opts == "" {
			required = append(required, name)
		}
	}
	return object{"type": "object", "properties": props, "required": required}
}

// nullable is the schema of a value that may be null, too.
func nullable(schema object) object {
	schema["type"] = []any{schema["type"], "null"}
	return schema
}

// fields are the fields of a struct and of the structs that it embeds.
func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			if !f.Anonymous && !yield(f) {
				return
			}
		}
	}
}
