package bucket

import (
	"reflect"
	"testing"
)

// An algorithm that lacks a step fails with the name of the step.
func TestTableIsWhole(t *testing.T) {
	mayLack := map[string]bool{"derive": true, "level": true, "periodEnd": true, "whyMaxRequests": true}
	names := make(map[string]bool)
	for _, a := range Algorithms() {
		entry := reflect.ValueOf(algorithms[a])
		for i := range entry.NumField() {
			field := entry.Type().Field(i)
			if field.Type.Kind() != reflect.Bool && entry.Field(i).IsZero() && !mayLack[field.Name] {
				t.Errorf("%v has no %s", a, field.Name)
			}
		}
		if names[a.String()] {
			t.Errorf("two algorithms are called %v", a)
		}
		names[a.String()] = true
		parsed, err := ParseAlgorithm(a.String())
		if parsed != a || err != nil {
			t.Errorf("%v is read as %v, %v", a, parsed, err)
		}
	}
	if len(names) != len(algorithms)-1 {
		t.Errorf("%d of %d entries of the table have a name", len(names), len(algorithms)-1)
	}
}
