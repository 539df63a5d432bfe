"""A contract for import-linter: modules that start with the standard library and nothing else."""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.domain.helpers import pop_import_expressions


class StandardLibraryContract(Contract):
    """The modules, and whatever of ours they import in turn, import the standard library and nothing else.

    An import inside a function counts too: one that is for later stands in `ignore_imports`.
    """

    type_name = "standard_library"
    modules = fields.ListField(subfield=fields.ModuleField())
    ignore_imports = fields.ListField(subfield=fields.ImportExpressionField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        pop_import_expressions(graph, self.ignore_imports)  # type: ignore[arg-type]  # raises for one that is not there
        seen = {name for one in self.modules for name in (one.name, *graph.find_descendants(one.name))}  # type: ignore[attr-defined]
        waiting, foreign = sorted(seen), []
        while waiting:
            importer = waiting.pop()
            for imported in sorted(graph.find_modules_directly_imported_by(importer) - seen):
                top = imported.partition(".")[0]
                if top == "crewhall":
                    seen.add(imported)
                    waiting.append(imported)
                elif top not in sys.stdlib_module_names:
                    foreign.append(f"{importer} imports {imported}")
        return ContractCheck(kept=not foreign, metadata={"foreign": foreign})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["foreign"]:
            output.print_error(f"{line}, which is not in the standard library.")
        output.print_error("Import it inside a function, and add that import to ignore_imports in .importlinter.")
