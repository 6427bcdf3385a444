// Package pages bounds the pages and answers of the operators' port that are made at a
// time: few, whatever their number and however slowly their clients read. It imports
// nothing of the project.
package pages
