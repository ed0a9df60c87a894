package dashboard

import (
	"embed"
	"encoding/json"
	"fmt"
)

//go:embed catalogue
var catalogueFiles embed.FS

// languages are those of the catalogue, the default first.
var languages = []string{"en", "de"}

// catalogue has the texts of the pages in other languages, by their English text.
var catalogue = readCatalogue()

func readCatalogue() map[string]map[string]string {
	out := make(map[string]map[string]string)
	for _, lang := range languages[1:] {
		b, err := catalogueFiles.ReadFile("catalogue/" + lang + ".json")
		texts := make(map[string]string)
		if err == nil {
			err = json.Unmarshal(b, &texts)
		}
		if err != nil {
			panic(err)
		}
		out[lang] = texts
	}
	return out
}

// T is a text in the reader's language. With values it is a format of package fmt.
func (p *page) T(text string, values ...any) string {
	if t, ok := catalogue[p.Lang][text]; ok {
		text = t
	}
	if len(values) == 0 {
		return text
	}
	return fmt.Sprintf(text, values...)
}
