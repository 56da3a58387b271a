"""Renders the templates of expressions.json again, in Hugging Face's Jinja2 settings.

    pip install jinja2==3.1.6
    python generate.py expressions.json > new.json
"""
import datetime
import json
import sys

import jinja2,jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
def env():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    def raise_exception(m): raise jinja2.exceptions.TemplateError(m)
    class Gen(jinja2.ext.Extension):
        tags={"generation"}
        def parse(self, parser):
            lineno=next(parser.stream).lineno
            body=parser.parse_statements(["name:endgeneration"],drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_g"),[],[],body).set_lineno(lineno)
        def _g(self, caller): return caller()
    e=ImmutableSandboxedEnvironment(trim_blocks=True,lstrip_blocks=True,extensions=[Gen,jinja2.ext.loopcontrols])
    e.filters["tojson"]=tojson; e.globals["raise_exception"]=raise_exception
    now=datetime.datetime(2026,11,29,18,0,0)
    e.globals["strftime_now"]=lambda f: now.strftime(f)
    return e


data = json.load(open(sys.argv[1]))
for case in data["cases"]:
    try:
        case["expect"] = env().from_string(case["template"]).render(x=data["x"])
    except Exception:
        case["expect"] = None
json.dump(data, sys.stdout, ensure_ascii=False, indent=0)
