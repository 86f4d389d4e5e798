package drill

// Words are what a shell may complete: the drills, each with a tab and its title.
func Words() []string {
	out := make([]string, len(Table))
	for i := range Table {
		out[i] = Table[i].Name + "\t" + Table[i].Title
	}
	return out
}

// Hows are the variants of a drill, each with a tab and its title.
func Hows(name string) (out []string) {
	for i := range Table {
		for _, v := range Table[i].Variants {
			if Table[i].Name == name {
				out = append(out, v.How+"\t"+v.Title)
			}
		}
	}
	return out
}

// ChoiceWords are the names that --only takes: of drills, and of their variants, each with a
// tab and its title.
func ChoiceWords() []string {
	out := Words()
	for _, d := range Table {
		for _, v := range d.Variants {
			out = append(out, Choice{d, v}.Name()+"\t"+v.Title)
		}
	}
	return out
}
