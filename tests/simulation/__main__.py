from tests.simulation.simulation import simulate
import sys,time,os
sys.unraisablehook=lambda u: None
from collections import Counter
a=sys.argv[1:]
if a[0]=="--seed":
    r=simulate(int(a[1]), print if "--trace" in a else None); print(r.hash,r.broken,r.runs,r.virtual_s)
else:
    n=int(a[1]); t=time.process_time(); b=0; st=Counter(); runs=Counter(); v=0;c=0;cb=0
    first=int(a[2]) if len(a)>2 else 0
    kinds=Counter()
    for s in range(first,first+n):
        r=simulate(s); st+=r.sometimes; runs+=r.runs; v+=r.virtual_s; c+=r.commits; cb+=r.callbacks
        if r.broken:
            b+=1; kinds[' '.join(r.broken[0].split()[:6])]+=1
            if kinds[' '.join(r.broken[0].split()[:6])]<=2: print(s,r.broken[0][:600])
    d=time.process_time()-t
    print(n/d,"seeds/s",b,"broken",runs,"virtual",v/n,"commits",c/n,"callbacks",cb/n)
    print(kinds.most_common(20))
    if "-s" in a:
        from tests.simulation.sometimes import SOMETIMES
        for x in SOMETIMES: print(st[x],x)
        print([x for x in st if x not in SOMETIMES])
